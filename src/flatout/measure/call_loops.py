"""A loop that calls the same layer again and again in a step's forward pass, from the kernel trace.

What stands in the loop beside the layer, such as a distribution that is made of each output, is done once too where one
call takes all inputs: an iteration lasts from one call to the next, whoever computes in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.measure.repeated_weights import RepeatedWeight
from flatout.measure.timeline import Ints, intervals, union
from flatout.record.kernel_trace import Spans

_LEAST_CALLS = 4  # in a loop
_NEXT = 4.0  # times the median iteration: a longer one contains something that is not of the loop
_MOST_BETWEEN = 0.1  # 0.02 to 0.05 in six loops over samples, 0.15 in one over steps of an environment
_ENGINE = "autograd::engine::"


@dataclass(frozen=True)
class CallLoop:
    """The loops around one layer in a step.

    Attributes:
        calls: of the layer, in the longest of them.
        share: of the traced step, without what tracing adds: other steps may have other numbers of calls.
        between: share of an iteration in its longest piece without an operator, in the median.
        read: most iterations take a value out of a tensor with ``.item()``.
    """

    calls: int
    share: float
    between: float = 0.0
    read: bool = False

    @property
    def interrupted(self) -> bool:
        """True if other code works between the calls, perhaps on their results, as an environment does."""
        return self.read or self.between > _MOST_BETWEEN


def call_loop(
    operators: Spans,
    inside: NDArray[np.bool_],
    parent: Ints,
    weight: RepeatedWeight | None,
    steps: float,
    tracing_ns: float,
    wall_ns: float,
) -> CallLoop | None:
    """The loops around the calls of the repeated layer; None: there is none.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        parent: row of the operator that calls each one; -1: none does.
        weight: of the layer.
        steps: measured.
        tracing_ns: what tracing adds to each operator.
        wall_ns: of these steps, waits for batches and what tracing adds left out.
    """
    if weight is None:
        return None
    rows = np.flatnonzero(inside)
    outer = rows[parent[rows] < 0]
    starts = operators.start[[row for row in outer.tolist() if _takes(operators, row, weight.shape)]]
    # Several layers of one shape take turns.
    each = max(round(len(starts) / (weight.uses * steps)), 1)
    starts = starts[::each]
    if len(starts) < _LEAST_CALLS:
        return None
    lengths = np.diff(starts) - tracing_ns * np.diff(np.searchsorted(operators.start[rows], starts))
    typical = float(np.median(lengths))
    follows = lengths <= _NEXT * typical
    # What holds up one iteration cuts a loop in two: the longest is whole.
    breaks = np.concatenate(([-1], np.flatnonzero(~follows), [len(follows)]))
    calls = int(np.diff(breaks).max())
    if calls < _LEAST_CALLS or typical <= 0:
        return None
    iterations = intervals(starts[:-1][follows], starts[1:][follows])
    share = len(starts) / max(len(iterations), 1)  # the last iteration of a loop ends at no call
    reads = iterations.at(operators.start[[row for row in outer.tolist() if operators.name[row] == "aten::item"]])
    return CallLoop(
        calls=calls,
        share=min(float(lengths[follows].sum() * share / max(wall_ns, 1.0)), 1.0),
        between=_between(operators, outer, starts, follows),
        read=len(np.unique(reads[reads >= 0])) > len(iterations) / 2,
    )


def _takes(operators: Spans, row: int, shape: tuple[int, ...]) -> bool:
    """True if an operator of the forward pass takes a tensor of a weight's shape."""
    if operators.name[row].startswith(_ENGINE):
        return False
    shapes: Any = operators.arguments[row].get("Input Dims")
    return isinstance(shapes, list) and (list(shape) in shapes or list(shape[::-1]) in shapes)


def _between(operators: Spans, outer: Ints, starts: Ints, follows: NDArray[np.bool_]) -> float:
    """Share of an iteration in its longest piece without an operator, in the median."""
    busy = union(operators.start[outer], operators.end[outer])
    begin, length = busy.end[:-1], busy.start[1:] - busy.end[:-1]
    iteration = np.searchsorted(starts, begin, "right") - 1
    longest = np.zeros(len(starts), np.int64)
    within = iteration >= 0
    np.maximum.at(longest, iteration[within], length[within])
    return float(np.median(longest[:-1][follows] / np.maximum(np.diff(starts)[follows], 1)))
