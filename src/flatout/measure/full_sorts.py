"""Sorts of whole tensors of which only the first places are used.

``x.sort(-1)[0][..., :k]`` sorts all n values of each row; ``x.topk(k, largest=False)`` finds the first k among them.
Balls of point clouds, nearest neighbours and negatives that are hard are often chosen so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.record.kernel_trace import Spans
from flatout.record.operator_inputs import Input, Tensor, read_inputs

_SORTS = ("aten::sort", "aten::argsort", "aten::msort")
_SLICE, _SELECT = "aten::slice", "aten::select"
_FEW = 4  # times as many are sorted as are used, at least: finding a half of them is no faster
_LEAST_SORTED = 64  # a row; shorter ones are sorted at once
_SOON = 24  # operators after the sort, within which its result is cut


@dataclass(frozen=True)
class FullSorts:
    """The sorts of a step of which few places are used.

    Attributes:
        shape: of the tensor whose sorts take the most time.
        dimension: along which it is sorted.
        used: of its places, the first or the last ones, among which all lie that are kept.
        seconds: a step, of all such sorts, in kernels.
    """

    shape: tuple[int, ...]
    dimension: int
    used: int
    seconds: float


def full_sorts(
    operators: Spans,
    inside: NDArray[np.bool_],
    parent: NDArray[np.int64],
    source: NDArray[np.int64],
    work: NDArray[np.float64],
    steps: float,
) -> FullSorts | None:
    """Sorts that are cut right after them; None: there are none.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        parent: of each operator, the one that calls it; -1: none.
        source: operator that each piece of work belongs to; -1: unknown.
        work: ns in kernels.
        steps: measured.
    """
    outermost = np.flatnonzero(inside & (parent < 0))
    outermost = outermost[np.argsort(operators.start[outermost], kind="stable")]
    found: dict[tuple[tuple[int, ...], int, int], float] = {}
    for place, row in enumerate(outermost.tolist()):
        if operators.name[row] not in _SORTS or (sorted_ := _sorted(operators, row)) is None:
            continue
        shape, dimension = sorted_
        after = outermost[place + 1 : place + 1 + _SOON].tolist()
        cuts = [used for one in after if (used := _used(operators, one, shape, dimension))]
        if not cuts or shape[dimension] < _FEW * max(cuts):
            continue
        within = (operators.start >= operators.start[row]) & (operators.end <= operators.end[row])
        spent = float(work[(source >= 0) & within[source]].sum()) / 1e9 / steps
        key = (shape, dimension, max(cuts))
        found[key] = found.get(key, 0.0) + spent
    if not found:
        return None
    shape, dimension, used = max(found, key=found.__getitem__)
    return FullSorts(shape, dimension, used, sum(found.values()))


def _sorted(operators: Spans, row: int) -> tuple[tuple[int, ...], int] | None:
    """Shape and dimension of a sort, from ``(x, dim, descending)`` or ``(x, stable, dim, descending)``."""
    tensor, *others = (*read_inputs(operators.arguments[row], None), None)
    if not isinstance(tensor, Tensor) or not tensor.shape:
        return None
    numbers = [number for number in map(_whole, others) if number is not None]
    dimension = numbers[0] if numbers else (0 if operators.name[row] == "aten::msort" else -1)
    if not -len(tensor.shape) <= dimension < len(tensor.shape):
        return None
    dimension %= len(tensor.shape)
    large = tensor.shape[dimension] >= _LEAST_SORTED and tensor.count > 0
    return (tensor.shape, dimension) if large else None


def _whole(value: Input) -> int | None:
    """A number among an operator's arguments; None: it is something else."""
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else None


def _used(operators: Spans, row: int, shape: tuple[int, ...], dimension: int) -> int:
    """First or last places of a tensor of this shape that hold what an operator keeps of it; 0: it does not cut it."""
    name = operators.name[row]
    if name not in (_SLICE, _SELECT):
        return 0
    tensor, *others = (*read_inputs(operators.arguments[row], None), None, None, None, None)
    if not isinstance(tensor, Tensor) or tensor.shape != shape:
        return 0
    # A dimension, then an index, or the first place and the one after the last.
    along, first, end = (_whole(one) for one in others[:3])
    if along is None or along % len(shape) != dimension or first is None:
        return 0
    size = shape[dimension]
    if name == _SELECT:
        return 1 if first in (0, -1, size - 1) else 0
    first, end = _place(first, size), _place(size if end is None else end, size)
    # What is kept lies among so many of the first or of the last places.
    return min(end, size - first) if 0 < end - first < size else 0


def _place(value: int, size: int) -> int:
    return min(max(value + size if value < 0 else value, 0), size)
