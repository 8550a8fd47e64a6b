"""The part of a step's computation in which no operator runs for milliseconds: other code works there."""

from __future__ import annotations

import numpy as np

from flatout.measure.timeline import Accrual, Pieces, union
from flatout.record.kernel_trace import Spans

# From one operator to the next, Python takes microseconds; a loss with much of it, tenths of a millisecond.
_LONG_NS = 2_000_000


def long_pieces_ns(spans: list[Spans], waits: Pieces, begin: int, finish: int) -> float:
    """Nanoseconds of [begin, finish) in pieces of 2 ms or more in which nothing runs.

    Args:
        spans: operators, and kernels of a GPU.
        waits: for batches, which do not count.
        begin: of the traced steps, ns.
        finish: their end.
    """
    start, end = (np.concatenate([getattr(one, side) for one in spans]) for side in ("start", "end"))
    busy = union(np.clip(start, begin, finish), np.clip(end, begin, finish))
    free_start, free_end = np.append(begin, busy.end), np.append(busy.start, finish)
    length = free_end - free_start - Accrual(waits).between(free_start, free_end)
    return float(length[length >= _LONG_NS].sum())
