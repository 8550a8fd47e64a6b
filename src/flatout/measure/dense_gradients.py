"""Work on whole embedding tables for the gradients of a few rows.

The gradient of ``nn.Embedding`` or ``nn.EmbeddingBag`` is as large as its table, zeros for all rows but those of the
batch; clipping it and the optimizer's step then go through all rows too. With ``sparse=True`` they touch the batch's
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.record.kernel_trace import Spans
from flatout.record.operator_inputs import Tensor, read_inputs, tensors_of

# Place of the number of rows among the arguments, after the gradient and the indices.
_BACKWARD = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
# Read rows of the table in the forward pass.
_LOOKUPS = ("aten::embedding", "aten::index_select", "aten::embedding_bag", "aten::_embedding_bag")
_LEAST_ROWS = 2  # of a table, for each row that a batch takes from it


@dataclass(frozen=True)
class DenseGradients:
    """The tables whose gradients are mostly zeros.

    Attributes:
        tables: (rows, columns) of each shape of table.
        taken: rows that a step takes from all of them, repetitions included.
        seconds: a step, in kernels, on rows that it does not take.
    """

    tables: tuple[tuple[int, ...], ...]
    taken: float
    seconds: float


def dense_gradients(
    operators: Spans, inside: NDArray[np.bool_], source: NDArray[np.int64], work: NDArray[np.float64], steps: float
) -> DenseGradients | None:
    """What gradients of whole tables cost; None: no table has many more rows than a step takes from it.

    Args:
        operators: of the trace.
        inside: those of the measured steps.
        source: operator that each piece of work belongs to; -1: unknown.
        work: ns in kernels.
        steps: measured.
    """
    taken: dict[tuple[int, ...], float] = {}
    backward = inside & np.array([name in _BACKWARD for name in operators.name], bool)
    for row in np.flatnonzero(backward).tolist():
        if found := _gradient(operators.arguments[row], _BACKWARD[operators.name[row]]):
            table, rows = found
            taken[table] = taken.get(table, 0.0) + rows / steps
    large = {table: rows for table, rows in taken.items() if table[0] >= _LEAST_ROWS * rows}
    if not large:
        return None
    known = source >= 0
    spent = np.bincount(source[known], weights=work[known], minlength=len(operators))
    seconds = sum(
        float(spent[row]) * _needless(operators.name[row], operators.arguments[row], large) / 1e9 / steps
        for row in np.flatnonzero(inside & (spent > 0)).tolist()
    )
    return DenseGradients(tuple(sorted(large, reverse=True)), sum(large.values()), seconds)


def _gradient(arguments: dict[str, Any], place: int) -> tuple[tuple[int, ...], int] | None:
    """(rows, columns) of the table and the rows taken, from ``(grad, indices, ..., num_weights, ...)``."""
    inputs = (*read_inputs(arguments, None), *[None] * (place + 1))
    grad, indices, count = inputs[0], inputs[1], inputs[place]
    if not isinstance(grad, Tensor) or not isinstance(indices, Tensor) or not grad.shape or not isinstance(count, str):
        return None
    return ((int(count), grad.shape[-1]), indices.count) if count.isdigit() else None


def _needless(name: str, arguments: dict[str, Any], tables: Mapping[tuple[int, ...], float]) -> float:
    """Part of an operator's work that is on rows of these tables which the step does not take, 0..1."""
    if name in _LOOKUPS:
        return 0.0
    tensors = tensors_of(arguments)
    on_tables = [one.count * (1.0 - tables[one.shape] / one.shape[0]) for one in tensors if one.shape in tables]
    return sum(on_tables) / sum(one.count for one in tensors) if on_tables else 0.0
