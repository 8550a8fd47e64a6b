"""Loops that draw several batches before they train on the first of them."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.measure.batch_groups import grouped_steps
from flatout.probe import events as kinds
from flatout.record import Events
from flatout.record.events import EVENT_DTYPE

WAIT, TRAINED = 10, 100  # ns for a batch, for a backward pass


def loop(groups: list[tuple[int, int]], begin: int = 0) -> tuple[list[int], list[int]]:
    """Starts of waits and of backward passes: each group draws so many batches, then trains on so many."""
    waits, marks, now = [], [], begin
    for drawn, trained in groups:
        for _ in range(drawn):
            waits.append(now)
            now += WAIT
        for _ in range(trained):
            marks.append(now)
            now += TRAINED
    return waits, marks


def events(kind: int, starts: list[int], duration: int) -> Events:
    found = np.zeros(len(starts), EVENT_DTYPE)
    found["kind"], found["start"], found["duration"] = kind, starts, duration
    return found


@pytest.mark.parametrize("lead", [0, 1])
def test_each_batch_of_a_group_is_a_step_and_the_steps_fill_the_pass(lead: int) -> None:
    waits, marks = loop([(4 + lead, 4), (4, 4), (4 - lead, 4)])
    found = grouped_steps(
        events(kinds.BATCH_WAIT, waits, WAIT), events(kinds.BACKWARD, marks, TRAINED), np.zeros(12, np.int64)
    )
    assert found is not None
    assert found.batch.tolist() == list(range(12)) and found.last.tolist() == [0, 0, 0, 1] * 3
    assert found.start_ns[1:].tolist() == found.end_ns[:-1].tolist() and found.start_ns[0] == 0
    assert found.wait_ns.sum() == 12 * WAIT and np.count_nonzero(found.wait_ns) == 3
    assert found.work_end_ns.tolist() == [start + TRAINED for start in marks]


def test_two_passes_do_not_mix() -> None:
    first, second = loop([(3, 2), (1, 2)]), loop([(3, 2), (1, 2)], begin=1000)
    found = grouped_steps(
        events(kinds.BATCH_WAIT, first[0] + second[0], WAIT),
        events(kinds.BACKWARD, first[1] + second[1], TRAINED),
        np.array([0] * 4 + [1] * 4),
    )
    assert found is not None and found.batch.tolist() == list(range(8)) and found.end_ns[3] < 1000 == found.start_ns[4]


@pytest.mark.parametrize(
    "groups",
    [
        [(1, 1)] * 8,  # the usual loop, or one that accumulates gradients over batches that it draws one by one
        [(1, 2)] * 8,  # two losses of each batch
        [(2, 1)] * 8,  # paired batches of one loader
        [(8, 1)] * 4,  # most batches are skipped
        [(2, 1), *[(1, 1)] * 6, (0, 1)],  # one batch ahead
    ],
)
def test_other_loops_are_left_as_they_are(groups: list[tuple[int, int]]) -> None:
    waits, marks = loop(groups)
    epoch = np.zeros(len(waits), np.int64)
    assert grouped_steps(events(kinds.BATCH_WAIT, waits, WAIT), events(kinds.BACKWARD, marks, TRAINED), epoch) is None
