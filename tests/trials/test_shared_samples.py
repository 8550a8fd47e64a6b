"""Decoded samples that the runs of a fix share."""

import os
import time
from dataclasses import replace
from typing import Any

import pytest

from flatout.errors import CommandError
from flatout.probe.contract import SAMPLES_VARIABLE
from flatout.probe.sample_memory import SampleMemory
from flatout.results import Gain, Remedy
from flatout.trials.outcome import FAILED, OK, TrialRun
from flatout.trials.shared_samples import Growth, Pace, SharedSamples

SETTINGS = {"sample_cache_bytes": 100_000}
REMEDY = Remedy("decoded_once", "cpu_decode", "decode once", "identical", "medium", Gain(2.0, 1.5, 3.0), 0, "", "",
                settings=SETTINGS)  # fmt: skip


def shared(outcome: str = OK, left_s: float = 100.0) -> tuple[SharedSamples, list[Any]]:
    runs: list[Any] = []

    def run(settings: Any, seconds: float, over: Any) -> TrialRun:
        runs.append((dict(settings), seconds, bool(os.environ.get(SAMPLES_VARIABLE))))
        return TrialRun(outcome, "it crashed", 1.0)

    return SharedSamples(run, lambda: Pace(100.0, 5.0), lambda: left_s), runs


def test_one_pass_fills_the_memory_before_the_trial_and_again_after_an_interruption() -> None:
    samples, runs = shared()
    assert samples.settings(REMEDY, {"dataset_len": 1000}) == SETTINGS
    samples.prepare(SETTINGS)
    samples.prepare(SETTINGS)
    assert runs == [(SETTINGS, pytest.approx(13.0), True)]
    samples.clean_up({})
    assert SAMPLES_VARIABLE not in os.environ
    samples.resume({}, {"dataset_len": 1000})
    assert len(runs) == 1
    samples.resume(SETTINGS, {"dataset_len": 1000})
    assert len(runs) == 2
    samples.clean_up({})


@pytest.mark.parametrize(("left_s", "samples", "why"), [(40.0, 1000, "second pass"), (10.0, None, "too little time")])
def test_a_pass_that_takes_too_long_is_not_begun(left_s: float, samples: int | None, why: str) -> None:
    answer = shared(left_s=left_s)[0].settings(REMEDY, {"dataset_len": samples})
    assert isinstance(answer, str) and why in answer and "flatout apply" in answer


def test_where_calls_repeat_within_a_pass_a_part_of_it_is_looked_at() -> None:
    samples, runs = shared(left_s=100.0)
    loader = {"dataset_len": 100_000}
    assert "second pass" in str(samples.settings(REMEDY, loader))
    assert samples.settings(REMEDY, loader | {"repeats_within_pass": True}) == SETTINGS
    with pytest.raises(CommandError, match="did not repeat"):  # these runs store nothing
        samples.prepare(SETTINGS)
    assert runs[0][1] == pytest.approx(0.4 * 100.0 - 5.0)


def test_a_stream_is_watched_until_it_stores_no_more() -> None:
    samples, _ = shared(left_s=100.0)
    assert samples.settings(REMEDY, {"dataset_len": None}) == SETTINGS
    with pytest.raises(CommandError, match="did not repeat"):  # these runs store nothing
        samples.prepare(SETTINGS)


def test_a_first_pass_that_fails_leaves_nothing() -> None:
    samples, _ = shared(FAILED)
    with pytest.raises(CommandError, match="it crashed"):
        samples.prepare(SETTINGS)
    assert SAMPLES_VARIABLE not in os.environ


def test_other_functions_are_memoized_in_a_pass_of_their_own() -> None:
    samples, runs = shared()
    more = SETTINGS | {"memoize": "data.py:load"}
    for settings in (SETTINGS, more, SETTINGS, more):
        samples.prepare(settings)
    assert [settings for settings, *_ in runs] == [SETTINGS, more]
    samples.clean_up({})


def stored(counts: list[int], fullness: float = 0.1) -> Growth:
    class Memory:
        pass

    memory: Any = Memory()
    memory.fullness = fullness
    growth = Growth(memory)
    growth._entries = counts
    return growth


@pytest.mark.parametrize(
    ("counts", "ended", "surely"),
    [
        ([], False, False),
        ([0] * 90, False, False),
        ([0] * 20 + list(range(90)), False, False),
        ([0] * 20 + [5 * n for n in range(40)] + [200] * 5, False, False),
        ([0] * 20 + [5 * n for n in range(40)] + [200] * 40, True, True),
        ([0] * 2 + [5 * n for n in range(10)] + [50] * 10, True, False),  # for two seconds only
        ([0] * 20 + [round(300 * (1 - 0.95**n)) for n in range(60)], True, False),
    ],
)
def test_calls_repeat_once_no_more_of_them_are_stored(counts: list[int], ended: bool, surely: bool) -> None:
    assert (stored(counts).ended, stored(counts).surely_ended) == (ended, surely)
    assert not stored(counts, fullness=0.99).ended


def test_a_pass_in_which_nothing_repeats_is_soon_given_up() -> None:
    assert not stored([0] * 20 + list(range(40))).steady  # too short
    assert stored([0] * 20 + list(range(60))).steady
    assert not stored([0] * 20 + list(range(30)) + [30] * 30).steady


def test_of_a_pass_that_takes_too_long_functions_are_looked_at() -> None:
    settings = SETTINGS | {"memoize": "data.py:load"}
    remedy, long = replace(REMEDY, settings=settings), {"dataset_len": 1_000_000}
    assert shared()[0].settings(remedy, long) == settings
    assert "second pass" in str(shared(left_s=50.0)[0].settings(remedy, long))
    assert "second pass" in str(shared()[0].settings(REMEDY, long))


@pytest.mark.parametrize("repeats", [True, False])
def test_input_without_a_loader_has_to_repeat_its_calls(repeats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass is one of the functions' own; it ends once all calls were stored."""
    lasted: list[Any] = []

    def run(settings: Any, seconds: float, over: Any) -> TrialRun:
        memory = SampleMemory(0)
        for number in range(100):
            memory.keep((number if not repeats else number % 20).to_bytes(16, "little"), b"sample")
            time.sleep(0.003)
        lasted.append((seconds, over()))
        memory.close()
        return TrialRun(OK, "", 1.0)

    monkeypatch.setattr(Growth.__init__, "__defaults__", (0.002,))
    samples = SharedSamples(run, lambda: Pace(0.0, 5.0), lambda: 100.0)
    settings = {"sample_cache_bytes": 100_000, "memoize": "data.py:load"}
    assert samples.settings(replace(REMEDY, settings=settings), {}) == settings
    if repeats:
        samples.prepare(settings)
    else:
        with pytest.raises(CommandError, match="did not repeat"):
            samples.prepare(settings)
    assert lasted == [(35.0, False)]
    samples.clean_up({})
