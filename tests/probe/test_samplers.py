"""The time of a sampler is recorded for each batch where it matters, whoever fetches."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from flatout.measure.timeline import intervals
from flatout.probe import events
from flatout.probe.hooks import sampling
from flatout.record import ends, of_kinds
from tests.probe.parts import bare_script, counts, probed_script, within
from tests.probe.recorded import Recorded


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return probed_script(tmp_path_factory.mktemp("probed"), "samplers.py")


@pytest.mark.parametrize("workers", [0, 1])
def test_each_choice_of_indices_is_one_event_inside_a_wait_or_the_start_of_a_pass(
    probed: Recorded, workers: int
) -> None:
    found = within(probed, f"slow {workers}")
    chosen = of_kinds(found, events.SAMPLING)
    assert chosen["a"].tolist() == list(range(6))
    around = of_kinds(found, events.BATCH_WAIT, events.ITER_START)
    assert (intervals(around["start"], ends(around)).at(chosen["start"]) >= 0).all()
    # Two batches are made ahead by one worker, before the first one is waited for.
    starts = of_kinds(found, events.ITER_START)
    ahead = np.count_nonzero(intervals(starts["start"], ends(starts)).at(chosen["start"]) >= 0)
    assert ahead == 2 * workers


def test_a_sampler_that_takes_no_time_costs_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[tuple[int, ...]] = []
    clock = iter([1_000, 1_000 + sampling.LEAST_NS - 1, 2_000_000, 2_000_000 + sampling.LEAST_NS])
    monkeypatch.setattr(sampling, "now", lambda: next(clock))
    monkeypatch.setattr(sampling.REC, "on", True)
    monkeypatch.setattr(sampling.REC, "emit", lambda *values: recorded.append(values))
    for number in (0, 1):
        sampling.ended(sampling.begins(SimpleNamespace(_num_yielded=number)), [0])
    assert recorded == [(events.SAMPLING, 2_000_000, 2_000_000 + sampling.LEAST_NS, 0, 1)]


def test_a_plain_sampler_leaves_the_waits_as_they_are(probed: Recorded) -> None:
    assert counts(within(probed, "plain"), events.BATCH_WAIT) == (100,)


@pytest.mark.slow
def test_the_losses_are_those_without_the_probe(tmp_path, probed: Recorded) -> None:
    assert bare_script(tmp_path, "samplers.py").out == probed.out
