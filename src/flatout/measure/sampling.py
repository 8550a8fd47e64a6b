"""The choice of indices in the training process: the order of a pass at its start, and then those of each batch."""

from __future__ import annotations

import numpy as np

from flatout.measure.timeline import intervals
from flatout.measure.training import Training
from flatout.measure.worker_records import Fetches
from flatout.probe import events as kinds
from flatout.record import Events, ends


def order_s(waits: Events, fetches: tuple[Fetches, ...]) -> float:
    """Seconds of drawing the order of passes, without workers: in the first wait of each, before its fetch begins."""
    first = waits[waits["a"] == 0]
    begun = np.sort(np.concatenate([table.start_ns for table in fetches])) if fetches else np.zeros(0, np.int64)
    if not len(first) or not len(begun):
        return 0.0
    row = np.minimum(np.searchsorted(begun, first["start"]), len(begun) - 1)
    inside = (begun[row] >= first["start"]) & (begun[row] <= ends(first))
    return float((begun[row] - first["start"])[inside].sum()) / 1e9


def indices_s(training: Training, loader: int) -> tuple[float, float]:
    """Seconds of choosing the indices of batches inside the window, less the first ones of each pass.

    A sampler draws the order of a pass when it is asked for the first indices: that is the start of an epoch.

    Returns:
        While a batch is waited for, and while a pass begins, for the batches that workers make ahead.
    """
    begin, finish = training.window_begin_ns, training.window_end_ns
    chosen = training.kind(kinds.SAMPLING)
    chosen = chosen[(chosen["a"] > 0) & (chosen["start"] >= begin) & (ends(chosen) <= finish)]
    found = []
    for kind in (kinds.BATCH_WAIT, kinds.ITER_START):
        around = training.kind(kind)
        around = around[around["arg"] == loader]
        inside = intervals(around["start"], ends(around)).at(chosen["start"]) >= 0
        found.append(float(chosen["duration"][inside].sum()) / 1e9)
    return found[0], found[1]
