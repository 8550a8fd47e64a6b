"""The part of a step's computation in which no operator runs for milliseconds: other code works there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from flatout.measure.account_ids import CODE
from flatout.measure.accounts import Charged
from flatout.measure.samples import frames_of
from flatout.measure.timeline import Accrual, Pieces, union
from flatout.record.kernel_trace import Spans

_TORCH = re.compile(r"/torch/")

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


def _is_of_torch(frame: Sequence[Any]) -> bool:
    return not frame[4] and bool(_TORCH.search(str(frame[0]).replace("\\", "/")))


def share_outside_torch(charged: Charged, accounts: Sequence[str], begin: int, finish: int) -> float:
    """Share of the stack samples in some accounts in which torch's own Python code is not the innermost.

    The most that other code can take: a line of the user's that calls an operator by itself counts, too.

    Args:
        charged: the training thread's time.
        accounts: their ids.
        begin: of the window, ns.
        finish: its end.
    """
    samples, piece = charged.samples, charged.sample_piece
    inside = (samples.time_ns >= begin) & (samples.time_ns < finish) & (piece >= 0)
    rows = np.flatnonzero(inside)
    rows = rows[np.isin(charged.account[piece[rows]], [CODE[id] for id in accounts])]
    frames = {id: frames_of(samples.names, id) for id in np.unique(samples.stack[rows]).tolist()}
    other = {id for id, found in frames.items() if found and not _is_of_torch(found[0])}
    weight = samples.weight[rows]
    return float(weight[np.isin(samples.stack[rows], list(other))].sum() / weight.sum()) if weight.sum() > 0 else 0.0
