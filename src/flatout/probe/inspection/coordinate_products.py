"""Products of sparse matrices in coordinates, in steps after the window: timed as they are, and by rows."""

from collections import Counter
from typing import Any

import torch

from ..replacements import csr_products
from . import both_ways
from .form_observer import FormObserver

_OPERANDS = {"mm": 0, "addmm": 1, "_sparse_addmm": 1}  # place of the first matrix
_MOST_KINDS = 3  # in the record
_LEAST_VALUES = 256  # of a matrix
_OF_A_STEP = 8  # matrices of a step that are held until the next one


class CoordinateProducts(FormObserver):
    """Finds them among the operators of a step.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
    """

    record = "coordinate_products"

    def __init__(self, line):
        self._line = line
        self._before: Any = None  # matrices of the first whole step
        super().__init__()

    def begin(self):
        self._calls: Any = Counter()  # id of a matrix, shape of the dense one, its need of gradients -> products
        self._matrices: Any = {}  # id -> the matrix, which so stays the only one with this id
        self._lines: Any = {}

    def look(self, name, args, *_):
        place = _OPERANDS.get(name)
        if place is None or args[place].layout is not torch.sparse_coo or not torch.is_grad_enabled():
            return
        matrix, dense = args[place : place + 2]
        if not csr_products.takes(matrix, dense) or matrix._nnz() < _LEAST_VALUES:
            return
        if id(matrix) not in self._matrices:
            if len(self._matrices) == _OF_A_STEP:
                return
            self._matrices[id(matrix)] = matrix
        kind = id(matrix), tuple(dense.shape), dense.requires_grad
        self._calls[kind] += 1
        if kind not in self._lines:
            self._lines[kind] = self._line()

    def forget(self):
        """No further step is looked at."""
        self.done, self._before = True, None
        self.begin()

    def save(self):
        """As in the base class, of the second whole step: by then it is known which matrices stay."""
        if self._before is None:
            self._before = self._matrices
        else:
            super().save()
            self._before = None

    def found(self):
        before = self._before
        kept = {place for place, matrix in self._matrices.items() if before.get(place) is matrix}
        most = sorted(self._calls, key=lambda kind: -self._calls[kind] * self._matrices[kind[0]]._nnz() * kind[1][1])
        chosen = [kind for kind in most if kind[0] in kept or self._calls[kind] > 1][:_MOST_KINDS]
        return [
            _told(self._matrices[kind[0]], kind, self._calls[kind], kind[0] in kept, self._lines[kind])
            for kind in chosen
        ]


def _told(matrix, kind, calls, kept, line):
    _, shape, gradients = kind
    found: Any = {
        "calls": calls,
        "matrix": list(matrix.shape),
        "values": matrix._nnz(),
        "input": list(shape),
        "kept": kept,
        "lines": [[*line[:3], calls]] if line and line[0] else [],
    }
    size = 2 * (3 * 8 * matrix._nnz() + 4 * 8 * (shape[0] + matrix.shape[0]) * shape[1])

    def times():
        source = torch.ones(shape, dtype=matrix.dtype, device=matrix.device, requires_grad=gradients)
        rows = csr_products.RowMatrix(matrix)
        if kept and gradients:
            _ = rows.columns  # made once in a training
        timed = 1 if kept else calls  # those of one matrix share what it is made into

        def plain():
            return [torch.sparse.mm(matrix, source) for _ in range(timed)]

        def by_rows():
            form = rows if kept else csr_products.RowMatrix(matrix)
            return [csr_products.product(form, source) for _ in range(timed)]

        both = both_ways.timed(plain, by_rows, [source] if gradients else [])
        return {
            name: [round(ns * calls / timed) for ns in times] for name, times in zip(("plain_ns", "joined_ns"), both)
        }

    return both_ways.told(found, size, times)
