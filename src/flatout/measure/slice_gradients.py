"""Gradients of slices that were taken one after the other: each fills a tensor of the whole's size with zeros.

The backward pass of ``x[:, t]`` makes zeros like ``x``, writes the gradient of the slice into them and adds all of them
up. A loop over T slices so touches T times the bytes of ``x``; ``x.unbind(1)`` joins the gradients once. A loop over
lists of indices (``x[:, neighbours]``) does the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.measure.timeline import union
from flatout.record.kernel_trace import Spans

_BACKWARD = {"aten::select_backward", "aten::slice_backward"}
_OF = "autograd::engine::evaluate_function: "
_ENGINE = tuple(f"{_OF}{name}Backward" for name in ("Select", "Slice"))
_INDEXED = f"{_OF}IndexBackward"
_ZEROS = "aten::new_zeros"  # in the backward pass of an index: like the whole
_Sliced = tuple[tuple[int, ...], int | None, int]  # shape of the whole, dimension, slices
_LEAST_SLICES = 8  # of one tensor; a gate or a half of it is taken apart for little


@dataclass(frozen=True)
class SliceGradients:
    """Slices of the tensors that have most of them.

    Attributes:
        shape: of the tensor that they are taken from.
        dimension: along which; None: each is a list of indices.
        slices: of one tensor; of lists of indices, in a step.
        seconds: a step, in kernels, beyond what joining the gradients once takes.
        calls: part of the operators that user and autograd call, which joining them leaves out.
    """

    shape: tuple[int, ...]
    dimension: int | None
    slices: int
    seconds: float
    calls: float = 0.0


def slice_gradients(
    operators: Spans,
    inside: NDArray[np.bool_],
    source: NDArray[np.int64],
    work: NDArray[np.float64],
    steps: float,
    outermost: int,
) -> SliceGradients | None:
    """What gradients of many slices cost; None: no tensor has as many.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        source: operator that each piece of work belongs to; -1: unknown.
        work: ns in kernels.
        steps: measured.
        outermost: operators of these steps that no other one calls.
    """
    names, found = _ENGINE, _by_place(operators, inside)
    if found is None:
        names, found = (_INDEXED,), _by_lists(operators, inside, steps)
    if found is None:
        return None
    shape, dimension, slices = found
    rest = 1.0 - 1.0 / slices
    seconds = rest * _kernel_seconds(_within(names, operators, inside), source, work) / steps
    return SliceGradients(shape, dimension, slices, seconds, rest * _part(names, operators, inside, outermost))


def _by_place(operators: Spans, inside: NDArray[np.bool_]) -> _Sliced | None:
    """The tensor that the slices with most zeros around them are taken from, by an index or a range."""
    groups: dict[tuple[tuple[int, ...], int], tuple[int, set[tuple[int, ...]]]] = {}
    for row in np.flatnonzero(inside).tolist():
        if operators.name[row] in _BACKWARD and (key := _sliced(operators.arguments[row])):
            shape, dimension, place = key
            count, places = groups.get((shape, dimension), (0, set()))
            places.add(place)
            groups[shape, dimension] = (count + 1, places)
    several = {key: found for key, found in groups.items() if len(found[1]) >= _LEAST_SLICES}
    if not several:
        return None
    # What counts is the zeros that are filled in: a loop may take small slices of each large one.
    shape, dimension = max(several, key=lambda key: several[key][0] * math.prod(key[0]))
    return shape, dimension, len(several[shape, dimension][1])


def _by_lists(operators: Spans, inside: NDArray[np.bool_], steps: float) -> _Sliced | None:
    """The same of parts that lists of indices name, by the zeros that are made for each."""
    within = _within((_INDEXED,), operators, inside)
    counts: dict[tuple[int, ...], int] = {}
    for row in np.flatnonzero(inside & within).tolist():
        if operators.name[row] == _ZEROS and (shape := _shape(operators.arguments[row])):
            counts[shape] = counts.get(shape, 0) + 1
    most = max(counts, key=counts.__getitem__, default=None)
    if most is None or (parts := round(counts[most] / steps)) < _LEAST_SLICES:
        return None
    return most, None, parts


def _part(names: tuple[str, ...], operators: Spans, inside: NDArray[np.bool_], outermost: int) -> float:
    """Nodes of the graph with these names, as a part of all operators that no other one calls."""
    nodes = sum(operators.name[row].startswith(names) for row in np.flatnonzero(inside).tolist())
    return min(nodes / max(outermost, 1), 1.0)


def _within(names: tuple[str, ...], operators: Spans, inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The operators that nodes of the graph with these names run."""
    engine = inside & np.array([name.startswith(names) for name in operators.name], bool)
    return np.asarray(union(operators.start[engine], operators.end[engine]).at(operators.start) >= 0)


def _kernel_seconds(within: NDArray[np.bool_], source: NDArray[np.int64], work: NDArray[np.float64]) -> float:
    return float(work[(source >= 0) & within[source]].sum()) / 1e9


def _shape(arguments: dict[str, Any]) -> tuple[int, ...]:
    """The second argument, a size; empty: it is none."""
    values = arguments.get("Concrete Inputs")
    if not isinstance(values, list) or len(values) < 2:
        return ()
    try:
        return tuple(int(size) for size in str(values[1]).strip("[]").split(",") if size.strip())
    except ValueError:
        return ()


def _sliced(arguments: dict[str, Any]) -> tuple[tuple[int, ...], int, tuple[int, ...]] | None:
    """Shape of the whole, dimension, and place of the slice, from ``(grad, sizes, dim, index | start, end, step)``."""
    values, shape = arguments.get("Concrete Inputs"), _shape(arguments)
    if not shape or not isinstance(values, list) or len(values) < 4:
        return None
    try:
        return shape, int(values[2]), tuple(int(value) for value in values[3:])
    except ValueError:
        return None
