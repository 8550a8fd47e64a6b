"""Spans of a thread in rows in which they nest: a viewer draws a wrong length where two of a row overlap otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.export.timeline import Ints


@dataclass(frozen=True)
class Edges:
    """Begins and ends of spans, row by row, in an order in which each span ends inside the one it began in.

    Attributes:
        span: index of the span.
        is_end: it ends here.
        row: in which the span lies, for each span.
        rows: how many there are.
    """

    span: Ints
    is_end: np.typing.NDArray[np.bool_]
    row: Ints
    rows: int


def nested(start: Ints, end: Ints) -> Edges:
    """Put spans into as few rows as first fit gives, so that in each row any two are disjoint or one holds the other.

    Args:
        start: of each span, ns.
        end: of each span, ns, not before its start.

    O(n log n + n rows). Of spans that begin together the longer one is the outer one.
    """
    order = np.lexsort((-end, start))
    row_of = np.zeros(len(start), np.int64)
    open_ends: list[list[int]] = []
    open_spans: list[list[int]] = []
    # An end is held as the complement of its span, which is negative.
    edges: list[list[int]] = []
    for begin, finish, span in zip(start[order].tolist(), end[order].tolist(), order.tolist(), strict=True):
        for row, ending in enumerate(open_ends):
            inside = open_spans[row]
            while ending and ending[-1] <= begin:
                ending.pop()
                edges[row].append(~inside.pop())
            if not ending or finish <= ending[-1]:
                break
        else:
            row, ending, inside = len(edges), [], []
            open_ends.append(ending)
            open_spans.append(inside)
            edges.append([])
        ending.append(finish)
        inside.append(span)
        edges[row].append(span)
        row_of[span] = row
    for row, inside in enumerate(open_spans):
        edges[row].extend(~span for span in reversed(inside))
    flat = np.array([edge for row in edges for edge in row], np.int64)
    is_end = flat < 0
    return Edges(np.where(is_end, ~flat, flat), is_end, row_of, len(edges))
