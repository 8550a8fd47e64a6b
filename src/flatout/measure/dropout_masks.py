"""Masks of dropout that a CPU draws one element at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.record.kernel_trace import Spans
from flatout.record.operator_inputs import Tensor, read_inputs

_DRAW, _DROPOUT = "aten::bernoulli_", "aten::dropout"


@dataclass(frozen=True)
class DropoutMasks:
    """The masks of a step.

    Attributes:
        elements: that are drawn.
        seconds: a step, in kernels that draw them.
        called: part of that time in calls of dropout by Python code, which a setting can replace.
        quick: time of a mask from few random bits, over that of these, as measured on this device.
    """

    elements: float
    seconds: float
    called: float
    quick: float

    @property
    def saved_s(self) -> float:
        """What quick masks save of a step, in kernels."""
        return self.seconds * (1.0 - self.quick)


def dropout_masks(
    operators: Spans,
    inside: NDArray[np.bool_],
    parent: NDArray[np.int64],
    work: NDArray[np.float64],
    steps: float,
    reference: Mapping[str, Any],
) -> DropoutMasks | None:
    """What drawing masks takes; None: there are none, or what others take is not known, as on a GPU.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        parent: of each operator, the one that calls it; -1: none.
        work: ns in kernels of the operators inside.
        steps: measured.
        reference: what was timed beside the trace.
    """
    bernoulli_ns, quick_ns = reference.get("bernoulli_ns"), reference.get("quick_mask_ns")
    names = operators.name
    elements = spent = called = 0.0
    for row, work_ns in zip(np.flatnonzero(inside).tolist(), work.tolist(), strict=True):
        if names[row] != _DRAW:
            continue
        drawn = next(iter(read_inputs(operators.arguments[row], None)), None)
        elements += drawn.count if isinstance(drawn, Tensor) else 0
        spent += work_ns
        caller = int(parent[row])
        if caller >= 0 and names[caller] == _DROPOUT and parent[caller] < 0:
            called += work_ns
    if not bernoulli_ns or not quick_ns or not spent:
        return None
    return DropoutMasks(elements / steps, spent / 1e9 / steps, called / spent, min(quick_ns / bernoulli_ns, 1.0))
