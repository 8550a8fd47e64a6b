"""Exclusive time of nested spans: one thread's time cut into pieces that each belong to one span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
GAP = -1  # owner of time that no span covers


@dataclass(frozen=True)
class Pieces:
    """Disjoint intervals in time order, ns; ``owner`` is the row of the span each belongs to, or GAP."""

    start: Ints
    end: Ints
    owner: Ints

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: ArrayLike) -> Pieces:
        """The pieces that an index or a mask selects."""
        chosen = np.asarray(rows)
        return Pieces(self.start[chosen], self.end[chosen], self.owner[chosen])

    @property
    def length(self) -> Ints:
        """Length of each piece, ns."""
        return self.end - self.start

    def at(self, times: ArrayLike) -> Ints:
        """Row of the piece that holds each time; -1 where none does."""
        times = np.asarray(times, np.int64)
        rows = np.searchsorted(self.start, times, "right") - 1
        inside = (rows >= 0) & (times < self.end[np.maximum(rows, 0)]) if len(self) else np.zeros(len(times), bool)
        return np.where(inside, rows, -1)


def intervals(start: ArrayLike, end: ArrayLike) -> Pieces:
    """Intervals that are disjoint already, in any order; empty ones are left out."""
    begin, finish = np.asarray(start, np.int64), np.asarray(end, np.int64)
    order = np.argsort(begin, kind="stable")
    order = order[finish[order] > begin[order]]
    return Pieces(begin[order], finish[order], order.astype(np.int64))


def exclusive_pieces(
    start: Ints, end: Ints, begin: int, finish: int, absorbs: Flags | None = None, escapes: Flags | None = None
) -> Pieces:
    """Cut [begin, finish) into pieces that belong to the innermost span at each time.

    Args:
        start: starts of the spans, ns, in order of ending (as a record holds them).
        end: ends of the spans, ns.
        begin: where the first piece starts, ns.
        finish: where the last piece ends, ns.
        absorbs: spans that keep what lies inside them.
        escapes: spans that keep their own time even inside an absorbing one.

    A span that outlasts the span it began in is cut off at that one's end. O(n log n).
    """
    # Of spans with the same start the longer is the outer one; of equal ones the one that ended later.
    order = np.lexsort((-np.arange(len(start)), -end, start))
    starts, ends = start[order].tolist(), end[order].tolist()
    keeps = [False] * len(start) if absorbs is None else absorbs.tolist()
    own = [False] * len(start) if escapes is None else escapes.tolist()
    cuts: list[int] = []  # end of each piece, the next begins there
    owners: list[int] = []
    open_ends: list[int] = []
    open_rows: list[int] = []
    cursor = begin

    def close_until(time: int) -> None:
        nonlocal cursor
        while open_ends and open_ends[-1] <= time:
            until, row = open_ends.pop(), open_rows.pop()
            if until > cursor:
                cuts.append(until)
                owners.append(row)
                cursor = until

    for span_start, span_end, row in zip(starts, ends, order.tolist(), strict=True):
        span_start, span_end = max(span_start, begin), min(span_end, finish)
        if span_end <= span_start:
            continue
        close_until(span_start)
        if open_rows and keeps[open_rows[-1]] and not own[row]:
            continue
        if span_start > cursor:
            cuts.append(span_start)
            owners.append(open_rows[-1] if open_rows else GAP)
            cursor = span_start
        open_ends.append(min(span_end, open_ends[-1]) if open_ends else span_end)
        open_rows.append(row)
    close_until(finish)
    if cursor < finish:
        cuts.append(finish)
        owners.append(GAP)
    piece_end = np.array(cuts, np.int64)
    piece_start = np.concatenate(([begin], piece_end[:-1])).astype(np.int64) if len(cuts) else piece_end
    return Pieces(piece_start, piece_end, np.array(owners, np.int64))


@dataclass(frozen=True)
class Overlay:
    """Pieces of a base timeline, cut where another timeline begins and ends."""

    start: Ints
    end: Ints
    base: Ints  # row of the base piece
    cover: Ints  # row of the covering piece; -1 if there is none


def overlay(base: Pieces, cover: Pieces) -> Overlay:
    """Cut ``base`` at the edges of ``cover``; both disjoint, in time order and without empty pieces."""
    if not len(base):
        return Overlay(base.start, base.end, base.owner, base.owner)
    edges = np.unique(np.concatenate([base.start, base.end, cover.start, cover.end]))
    start, end = edges[:-1], edges[1:]
    base_row = base.at(start)
    kept = base_row >= 0
    start, end, base_row = start[kept], end[kept], base_row[kept]
    return Overlay(start, end, base_row, cover.at(start))


def union(start: ArrayLike, end: ArrayLike) -> Pieces:
    """Merge intervals that may overlap; the owners are the rows of the merged intervals."""
    begin, finish = np.asarray(start, np.int64), np.asarray(end, np.int64)
    order = np.argsort(begin, kind="stable")
    order = order[finish[order] > begin[order]]
    if not len(order):
        return intervals([], [])
    begin, reach = begin[order], np.maximum.accumulate(finish[order])
    first = np.concatenate(([True], begin[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return intervals(begin[first], reach[last])


class Accrual:
    """The amount accrued by a given time: grows linearly inside disjoint intervals, constant between them."""

    def __init__(self, pieces: Pieces, weight: Floats | None = None) -> None:
        """Accrue ``weight`` (default: 1) for each nanosecond inside the pieces."""
        self._origin = int(pieces.start[0]) if len(pieces) else 0
        amount = pieces.length.astype(float) if weight is None else pieces.length * weight
        reached = np.cumsum(amount)
        # Differences first: a float64 holds nanoseconds since boot, but not their sums, exactly.
        self._time = np.column_stack([pieces.start - self._origin, pieces.end - self._origin]).ravel().astype(float)
        self._reached = np.column_stack([reached - amount, reached]).ravel()

    def between(self, begin: ArrayLike, finish: ArrayLike) -> Floats:
        """Accrued amount, ns times weight, between each pair of times."""
        if not len(self._time):
            return np.zeros(np.shape(begin))
        return self._by(finish) - self._by(begin)

    def _by(self, time: ArrayLike) -> Floats:
        return np.asarray(np.interp(np.asarray(time, np.int64) - self._origin, self._time, self._reached), np.float64)
