"""Decoded samples that the runs of a fix share."""

import os
from typing import Any

import pytest

from flatout.errors import CommandError
from flatout.probe.contract import SAMPLES_VARIABLE
from flatout.results import Gain, Remedy
from flatout.trials.outcome import FAILED, OK, TrialRun
from flatout.trials.shared_samples import Pace, SharedSamples

SETTINGS = {"sample_cache_bytes": 100_000}
REMEDY = Remedy("decoded_once", "cpu_decode", "decode once", "identical", "medium", Gain(2.0, 1.5, 3.0), 0, "", "",
                settings=SETTINGS)  # fmt: skip


def shared(outcome: str = OK, left_s: float = 100.0) -> tuple[SharedSamples, list[Any]]:
    runs: list[Any] = []

    def run(settings: Any, seconds: float) -> TrialRun:
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


@pytest.mark.parametrize(("left_s", "samples", "why"), [(40.0, 1000, "second pass"), (100.0, None, "unknown")])
def test_a_pass_that_takes_too_long_is_not_begun(left_s: float, samples: int | None, why: str) -> None:
    answer = shared(left_s=left_s)[0].settings(REMEDY, {"dataset_len": samples})
    assert isinstance(answer, str) and why in answer and "flatout apply" in answer


def test_a_first_pass_that_fails_leaves_nothing() -> None:
    samples, _ = shared(FAILED)
    with pytest.raises(CommandError, match="it crashed"):
        samples.prepare(SETTINGS)
    assert SAMPLES_VARIABLE not in os.environ


def test_other_functions_are_remembered_in_a_pass_of_their_own() -> None:
    samples, runs = shared()
    more = SETTINGS | {"memoize": "data.py:load"}
    for settings in (SETTINGS, more, SETTINGS, more):
        samples.prepare(settings)
    assert [settings for settings, *_ in runs] == [SETTINGS, more]
    samples.clean_up({})
