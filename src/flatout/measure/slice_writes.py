"""Parts of a tensor that are written one after the other, as by ``out[t] = h`` in a loop: what that costs backward.

autograd makes a node ``CopySlices`` of each such write, whose backward pass copies the gradient of the whole. A loop
over T parts so copies T times its bytes, where ``torch.stack`` of a list splits the gradient once. Each write is
several operators, too: a view, a copy, and up to ten in the backward pass.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.measure.timeline import union
from flatout.record.kernel_trace import Spans

_NODE = "torch::autograd::CopySlices"
_ENGINE = f"autograd::engine::evaluate_function: {_NODE}"
_IN_FORWARD = 2  # operators of a write that no other one calls: a view and a copy
_LEAST_WRITES = 8  # into tensors of one shape, in a step


@dataclass(frozen=True)
class SliceWrites:
    """Writes into parts of the tensors whose gradients are copied most.

    Attributes:
        shape: of the whole that most bytes are copied of.
        writes: into tensors of this shape, in a step.
        seconds: a step, in kernels of the backward passes of all such writes, beyond those of one.
        calls: part of the operators that these passes and the writes themselves are.
    """

    shape: tuple[int, ...]
    writes: int
    seconds: float
    calls: float


def slice_writes(
    operators: Spans,
    inside: NDArray[np.bool_],
    source: NDArray[np.int64],
    work: NDArray[np.float64],
    steps: float,
) -> SliceWrites | None:
    """What writing parts one after the other costs; None: no tensor has as many.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        source: operator that each piece of work belongs to; -1: unknown.
        work: ns in kernels.
        steps: measured.
    """
    names = np.array([name.startswith(_ENGINE) for name in operators.name], bool)
    engine = inside & names
    if np.count_nonzero(engine) < _LEAST_WRITES * steps:
        return None
    wholes: Counter[tuple[int, ...]] = Counter()
    for row in np.flatnonzero(inside).tolist():
        if operators.name[row] == _NODE:
            shapes = operators.arguments[row].get("Input Dims")
            if isinstance(shapes, list) and shapes and isinstance(shapes[0], list):
                wholes[tuple(shapes[0])] += 1
    shape = max(wholes, key=lambda shape: wholes[shape] * math.prod(shape), default=None)
    if shape is None or (writes := round(wholes[shape] / steps)) < _LEAST_WRITES:
        return None
    within = np.asarray(union(operators.start[engine], operators.end[engine]).at(operators.start) >= 0)
    rest = 1.0 - 1.0 / writes
    calls = float(np.count_nonzero(inside & within) + _IN_FORWARD * np.count_nonzero(engine))
    return SliceWrites(
        shape=shape,
        writes=writes,
        seconds=rest * float(work[(source >= 0) & within[source]].sum()) / 1e9 / steps,
        calls=rest * min(calls / max(int(np.count_nonzero(inside)), 1), 1.0),
    )
