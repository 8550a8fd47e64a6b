"""Products with matrices that are almost all zeros: one-hot rows, bags of words, the adjacency of a graph.

A product of dense matrices multiplies every zero. With a sparse matrix, or a lookup of the rows that are not zero, the
work goes with the other elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.record.kernel_trace import Spans
from flatout.record.operator_inputs import tensors_of

_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
# One-hot rows are zeros into which ones are scattered, then copied to another type.
_MAKING = ("aten::zero_", "aten::fill_", "aten::scatter_", "aten::scatter", "aten::copy_", "aten::index_put_")
# A nonzero of a CSR matrix took 3 to 11 times as long as an element of a dense product (one thread; 0.2% to 10%
# nonzeros, 16 to 128 columns).
_SLOWEST, _USUAL, _FASTEST = 11, 6, 3


@dataclass(frozen=True)
class ZeroOperands:
    """The products of a step with matrices that are almost all zeros.

    Attributes:
        shape: of the matrix whose products take the most time.
        nonzero: share of the elements that are not zero, of all such matrices; 0..1.
        product_s: seconds of a step in kernels, in all such products.
        making_s: the same in operators that make these matrices or pass them on.
    """

    shape: tuple[int, ...]
    nonzero: float
    product_s: float
    making_s: float

    @property
    def saved_s(self) -> float:
        """Seconds of a step in kernels that sparse products save."""
        return self._saved_s(_USUAL)

    @property
    def least_saved_s(self) -> float:
        """The same if each nonzero is slow, and what makes the matrices stays."""
        return self._saved_s(_SLOWEST) - self.making_s

    @property
    def most_saved_s(self) -> float:
        """The same if each nonzero is fast."""
        return self._saved_s(_FASTEST)

    def _saved_s(self, cost: int) -> float:
        return self.making_s + max(1.0 - cost * self.nonzero, 0.0) * self.product_s


@dataclass(frozen=True)
class _Kind:
    """Matrices of one shape in products: the part of them that is almost all zeros, and its nonzeros' share."""

    part: float
    nonzero: float


def zero_operands(
    operators: Spans,
    inside: NDArray[np.bool_],
    source: NDArray[np.int64],
    work: NDArray[np.float64],
    steps: float,
    seen: Sequence[tuple[Any, ...]] | None,
) -> ZeroOperands | None:
    """What products with zeros cost; None: none were seen.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        source: operator that each piece of work belongs to; -1: unknown.
        work: ns in kernels.
        steps: measured.
        seen: of each shape, its products, those with zeros, their elements and nonzeros, as the record has them.
    """
    kinds = {
        tuple(shape): _Kind(min(with_zeros / products, 1.0), min(nonzero / elements, 1.0))
        for shape, products, with_zeros, elements, nonzero in seen or ()
        if products and elements and len(shape) > 1
    }
    # Scores of all pairs may have the same shape: they depend on parameters, and are multiplied in backward passes.
    only_zeros = {(math.prod(shape), size) for shape, kind in kinds.items() if kind.part == 1.0 for size in shape[-2:]}
    known = source >= 0
    spent = np.bincount(source[known], weights=work[known], minlength=len(operators))
    in_products: dict[tuple[int, ...], float] = {}
    making = 0.0
    for row in np.flatnonzero(inside & (spent > 0)).tolist() if kinds else ():
        name = operators.name[row]
        if name not in _PRODUCTS and name not in _MAKING:
            continue
        shapes = [one.shape for one in tensors_of(operators.arguments[row]) if one.shape]
        if name in _MAKING:
            making += float(spent[row]) * any((math.prod(shape), shape[-1]) in only_zeros for shape in shapes)
        elif matrices := [shape for shape in shapes if shape in kinds]:
            most = max(matrices, key=lambda shape: kinds[shape].part)
            in_products[most] = in_products.get(most, 0.0) + kinds[most].part * float(spent[row])
    product = sum(in_products.values())
    if product <= 0:
        return None
    return ZeroOperands(
        shape=max(in_products, key=in_products.__getitem__),
        nonzero=sum(ns * kinds[shape].nonzero for shape, ns in in_products.items()) / product,
        product_s=product / 1e9 / steps,
        making_s=making / 1e9 / steps,
    )
