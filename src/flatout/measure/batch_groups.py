"""Steps of loops that draw several batches, and then train on one after the other.

transformers' Trainer does so with ``gradient_accumulation_steps``. Each batch is a step, although the next batch is
drawn before its backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.measure.timeline import Floats, Ints
from flatout.record import Events, ends

# Batches drawn before the first backward pass of their group, beyond the group: accelerate fetches one ahead.
_AHEAD = 1


@dataclass(frozen=True)
class GroupedSteps:
    """One row a step, in time order. Times in ns."""

    batch: Ints  # row of the batch that it trains on, among all batches
    start_ns: Ints
    end_ns: Ints  # begin of the next step of the pass; of the last one the end of its backward pass
    work_end_ns: Ints  # of its backward pass
    wait_ns: Floats  # for the batches of the group: all of it in the first step
    last: Ints  # 1 at the last step of a group, which the optimizer follows


def grouped_steps(waits: Events, marks: Events, epoch: Ints) -> GroupedSteps | None:
    """The steps of a loop that draws batches in groups; None if this one draws a batch for each step.

    Args:
        waits: for the batches of one loader, in order.
        marks: backward passes, in order.
        epoch: the pass of each batch.
    """
    if not len(waits):
        return None
    edges = np.flatnonzero(np.concatenate(([True], np.diff(epoch) != 0, [True])))
    finished = ends(marks)
    rows: list[tuple[int, int, int, int, float, int]] = []
    for first, behind in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        begin = np.searchsorted(finished, waits["start"][first], "right")
        end = np.searchsorted(finished, waits["start"][behind], "right") if behind < len(waits) else len(finished)
        passed = finished[begin:end]
        # Backward passes that had ended when each batch was asked for, and at the end of the pass.
        before = np.searchsorted(passed, waits["start"][first:behind], "right")
        counts = np.diff(np.append(before, len(passed)))
        if not _in_groups(counts):
            return None
        rows += _of_pass(first, waits[first:behind], counts, passed)
    batch, start, stop, work, wait, last = zip(*rows, strict=True)
    return GroupedSteps(
        batch=np.array(batch, np.int64),
        start_ns=np.array(start, np.int64),
        end_ns=np.array(stop, np.int64),
        work_end_ns=np.array(work, np.int64),
        wait_ns=np.array(wait, np.float64),
        last=np.array(last, np.int64),
    )


def _in_groups(counts: Ints) -> bool:
    """True if each batch of a pass is trained on once, and most of them after a later batch was drawn.

    Args:
        counts: backward passes between each batch and the next one.
    """
    followed = np.flatnonzero(counts)
    if len(followed) == 0 or counts.max() < 2 or len(followed) > 0.6 * len(counts):
        return False
    lag = np.arange(1, len(counts) + 1) - np.cumsum(counts)
    # The last group may be cut by the end of the record.
    settled = lag[followed[:-1]] if len(followed) > 1 else lag[followed]
    return bool((lag >= 0).all() and (settled <= _AHEAD).all())


def _of_pass(first: int, waits: Events, counts: Ints, finished: Ints) -> list[tuple[int, int, int, int, float, int]]:
    """The steps of one pass, whose first batch is row ``first`` of all."""
    rows = []
    trained = drawn = 0
    followed = np.flatnonzero(counts).tolist()
    for place, row in enumerate(followed):
        start = int(waits["start"][drawn])
        wait = float(waits["duration"][drawn : row + 1].sum())
        next_start = int(waits["start"][row + 1]) if row + 1 < len(waits) else 0
        for inner in range(counts[row]):
            done = int(finished[trained])
            last = inner == counts[row] - 1
            end = next_start if last and next_start and place + 1 < len(followed) else done
            rows.append((first + trained, start, max(end, done), done, wait, int(last)))
            start, wait = done, 0.0
            trained += 1
        drawn = row + 1
    return rows
