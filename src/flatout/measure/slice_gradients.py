"""Gradients of slices that were taken one after the other: each fills a tensor of the whole's size with zeros.

The backward pass of ``x[:, t]`` makes zeros like ``x``, writes the gradient of the slice into them and adds all of them
up. A loop over T slices so touches T times the bytes of ``x``; ``x.unbind(1)`` joins the gradients once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.measure.timeline import union
from flatout.record.kernel_trace import Spans

_BACKWARD = {"aten::select_backward", "aten::slice_backward"}
_ENGINE = tuple(f"autograd::engine::evaluate_function: {name}Backward" for name in ("Select", "Slice"))
_LEAST_SLICES = 8  # of one tensor; a gate or a half of it is taken apart for little


@dataclass(frozen=True)
class SliceGradients:
    """Slices of the tensors that have most of them.

    Attributes:
        shape: of the tensor that they are taken from.
        dimension: along which.
        slices: of one tensor.
        seconds: a step, in kernels, beyond what joining the gradients once takes.
    """

    shape: tuple[int, ...]
    dimension: int
    slices: int
    seconds: float


def slice_gradients(
    operators: Spans, inside: NDArray[np.bool_], source: NDArray[np.int64], work: NDArray[np.float64], steps: float
) -> SliceGradients | None:
    """What gradients of many slices cost; None: no tensor has as many.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        source: operator that each piece of work belongs to; -1: unknown.
        work: ns in kernels.
        steps: measured.
    """
    groups: dict[tuple[tuple[int, ...], int], tuple[int, set[tuple[int, ...]]]] = {}
    for row in np.flatnonzero(inside).tolist():
        if operators.name[row] in _BACKWARD and (key := _sliced(operators.arguments[row])):
            shape, dimension, place = key
            count, places = groups.get((shape, dimension), (0, set()))
            places.add(place)
            groups[shape, dimension] = (count + 1, places)
    most = max(groups.items(), key=lambda item: item[1][0], default=None)
    if most is None or len(most[1][1]) < _LEAST_SLICES:
        return None
    (shape, dimension), (_, places) = most
    engine = inside & np.array([name.startswith(_ENGINE) for name in operators.name], bool)
    within = union(operators.start[engine], operators.end[engine]).at(operators.start) >= 0
    ns = float(work[(source >= 0) & within[source]].sum())
    return SliceGradients(shape, dimension, len(places), ns / 1e9 / steps * (1.0 - 1.0 / len(places)))


def _sliced(arguments: dict[str, Any]) -> tuple[tuple[int, ...], int, tuple[int, ...]] | None:
    """Shape of the whole, dimension, and place of the slice, from ``(grad, sizes, dim, index | start, end, step)``."""
    values = arguments.get("Concrete Inputs")
    if not isinstance(values, list) or len(values) < 4:
        return None
    try:
        shape = tuple(int(size) for size in str(values[1]).strip("[]").split(",") if size.strip())
        return (shape, int(values[2]), tuple(int(value) for value in values[3:])) if shape else None
    except ValueError:
        return None
