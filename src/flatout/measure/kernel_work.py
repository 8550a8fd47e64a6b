"""The kernels of a step by what limits them: products of matrices, convolutions, memory, or the bus to the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flatout.measure.costly_operators import OVER_THE_BUS, CostlyOperator

Kind = Literal["matrix", "convolution", "memory", "bus"]
# Operators whose arithmetic grows faster than their data: what is left is limited by memory, and a compiler fuses it.
PRODUCT = re.compile(r"mm\b|mm_|matmul|conv|linear|lstm|gru|rnn|attention|einsum|gemm|fft", re.IGNORECASE)
_CONVOLUTION = re.compile(r"conv|[wd]grad|fprop", re.IGNORECASE)


@dataclass(frozen=True)
class KernelWork:
    """Equal kernels of one training step, and what they have to do.

    Attributes:
        kind: what they compute.
        dtype: in which, as torch names it; empty: not known.
        seconds: in them, a step.
        calls: of them, a step.
        flops: floating-point operations, a step; None: not known.
        bytes: read and written, a step; None: not known.
    """

    kind: Kind
    dtype: str
    seconds: float
    calls: float
    flops: float | None = None
    bytes: float | None = None


def kernel_work(operators: Sequence[CostlyOperator]) -> tuple[KernelWork, ...]:
    """What the kernels of these operators have to do; the order stays."""
    return tuple(_work(one) for one in operators if one.seconds > 0)


def _work(operator: CostlyOperator) -> KernelWork:
    kind, cost = _kind(operator), operator.cost
    if cost is None or (kind in ("matrix", "convolution") and not cost.flops):
        return KernelWork(kind, operator.dtype, operator.seconds, operator.calls)
    flops, size = operator.calls * cost.flops, operator.calls * cost.bytes
    return KernelWork(kind, cost.dtype, operator.seconds, operator.calls, flops, size)


def _kind(operator: CostlyOperator) -> Kind:
    if operator.name.startswith(OVER_THE_BUS):
        return "bus"
    cost = operator.cost
    if cost is not None and cost.flops:
        return "convolution" if cost.convolution else "matrix"
    # Of known cost without arithmetic it is no product, whatever its name says.
    if cost is not None or not PRODUCT.search(operator.name):
        return "memory"
    return "convolution" if _CONVOLUTION.search(operator.name) else "matrix"
