"""Operators that a CPU computes one element after the other, for which there is a quicker way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.record.kernel_trace import Spans
from flatout.record.operator_inputs import Tensor, read_inputs

_DRAW, _DROPOUT, _BCE = "aten::bernoulli_", "aten::dropout", "aten::binary_cross_entropy"


@dataclass(frozen=True)
class SlowKernel:
    """The calls of such an operator.

    Attributes:
        elements: a step.
        seconds: a step, in its kernel.
        called: part of that time in calls that a setting can replace.
        quick: time of the quicker way over that of the operator, as measured on this device.
    """

    elements: float
    seconds: float
    called: float
    quick: float

    @property
    def saved_s(self) -> float:
        """What the quicker way saves of a step, in kernels."""
        return self.seconds * (1.0 - self.quick)


@dataclass(frozen=True)
class SlowKernels:
    """Those of a step; None: there are none, or what they take here is not known, as on a GPU.

    Attributes:
        masks: of dropout, drawn by ``bernoulli_``.
        bce: binary cross-entropy of probabilities.
    """

    masks: SlowKernel | None = None
    bce: SlowKernel | None = None


NO_SLOW_KERNELS = SlowKernels()


def slow_kernels(
    operators: Spans,
    inside: NDArray[np.bool_],
    parent: NDArray[np.int64],
    work: NDArray[np.float64],
    steps: float,
    reference: Mapping[str, Any],
) -> SlowKernels:
    """What they take.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        parent: of each operator, the one that calls it; -1: none.
        work: ns in kernels of the operators inside.
        steps: measured.
        reference: what was timed beside the trace.
    """
    rows_inside = np.flatnonzero(inside).tolist()
    spent = {
        row: ns for row, ns in zip(rows_inside, work.tolist(), strict=True) if operators.name[row] in (_DRAW, _BCE)
    }

    def read(name: str, quick: str, slow: str) -> SlowKernel | None:
        rows = [row for row in spent if operators.name[row] == name]
        total = sum(spent[row] for row in rows)
        quick_ns, slow_ns = reference.get(quick), reference.get(slow)
        if not total or not quick_ns or not slow_ns:
            return None
        called = sum(spent[row] for row in rows if _is_called(operators, parent, row))
        elements = sum(_elements(operators, row) for row in rows)
        return SlowKernel(elements / steps, total / 1e9 / steps, called / total, min(quick_ns / slow_ns, 1.0))

    return SlowKernels(
        masks=read(_DRAW, "quick_mask_ns", "bernoulli_ns"),
        bce=read(_BCE, "quick_bce_ns", "bce_ns"),
    )


def _is_called(operators: Spans, parent: NDArray[np.int64], row: int) -> bool:
    """Whether Python code calls the operator, or for a mask dropout, in a form that a setting can replace."""
    if operators.name[row] == _BCE:
        inputs = list(read_inputs(operators.arguments[row], None))
        return bool(parent[row] < 0) and not any(isinstance(weight, Tensor) for weight in inputs[2:3])
    caller = int(parent[row])
    return caller >= 0 and operators.name[caller] == _DROPOUT and bool(parent[caller] < 0)


def _elements(operators: Spans, row: int) -> int:
    first = next(iter(read_inputs(operators.arguments[row], None)), None)
    return first.count if isinstance(first, Tensor) else 0
