"""The contents of the loader's queue while the training waited: later batches that were ready, and how many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flatout.measure.timeline import Ints
from flatout.measure.worker_records import Fetches
from flatout.record import Events, ends
from flatout.record.packed_fields import batches_ready

# A batch is slow when its fetch takes this many times the median: sharing a core with one other thread doubles it.
SLOW = 3.0


def head_of_line_s(waits: Events, fetches: Sequence[Fetches], pass_starts: Ints) -> float:
    """Seconds in which the training waited for a slow batch while a later one of the same pass was ready.

    A DataLoader that keeps the order delivers that later batch only after the one that is late.

    Args:
        waits: BATCH_WAIT events of the training loader.
        fetches: of each of its workers.
        pass_starts: when each pass over it began, ns.
    """
    if not len(waits) or not sum(map(len, fetches)):
        return 0.0
    made = np.concatenate([table.end_ns for table in fetches])
    batch = np.concatenate([table.batch for table in fetches])
    begun = np.concatenate([table.start_ns for table in fetches])
    slow = made - begun >= SLOW * np.median(made - begun)
    own_pass = _pass_of(begun, pass_starts)
    waited_pass = _pass_of(waits["start"].astype(np.int64), pass_starts)
    total = 0
    for number in np.unique(waited_pass).tolist():
        mine, asked = own_pass == number, waits[waited_pass == number]
        if not mine.any():
            continue
        order = np.argsort(batch[mine])
        batches, times = batch[mine][order], made[mine][order]
        asked = asked[np.isin(asked["a"], batch[mine & slow])]
        # For each position: the earliest time at which a batch from there on was made.
        earliest = np.minimum.accumulate(times[::-1])[::-1]
        row = np.searchsorted(batches, asked["a"], "right")
        later = row < len(batches)
        finish, begin = ends(asked)[later], asked["start"][later]
        total += int(np.maximum(finish - np.maximum(begin, earliest[row[later]]), 0).sum())
    return total / 1e9


def mean_ready(waits: Events) -> float | None:
    """Mean number of batches that were ready when the next one was asked for; None without waits."""
    return float(batches_ready(waits).mean()) if len(waits) else None


def _pass_of(times: Ints, pass_starts: Ints) -> Ints:
    return np.asarray(np.searchsorted(pass_starts, times, "right") - 1, np.int64)
