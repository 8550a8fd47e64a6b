"""Rows that are each multiplied by a matrix of its own, taken by index from few, in steps after the window.

As a layer of a graph with several kinds of edges does, or a model of relations: the matrices are copied for each row,
and their gradients are added up again. Sorted by the index, all rows of a matrix are one product. Both ways are timed.
"""

import math
from collections import Counter
from typing import Any

import torch

from .. import memory_room
from ..module_passes import tensors_in
from . import both_ways
from .form_observer import FormObserver
from .repeated_rows import address

_LEAST_TIMES = 4  # rows for each matrix
_MOST_ROWS = 4  # of a product
_LEAST_ELEMENTS = 1 << 16  # of the copies
_MOST_KINDS = 3  # in the record


class GatheredWeights(FormObserver):
    """Finds such products among the operators of a step.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
    """

    record = "gathered_weights"

    def __init__(self, line):
        self._line = line
        super().__init__()

    def begin(self):
        self._taken: Any = {}  # address of the copies -> the index, how many matrices there are, and the operator
        self._calls: Any = Counter()  # shapes and all that tells how long a call takes -> calls
        self._lines: Any = {}
        self._indices: Any = {}  # the same -> one of the indices

    def look(self, name, args, result, _):
        if name == "bmm":
            self._product(*args[:2])
        if self._taken:  # memory that was freed, and taken anew
            for one in tensors_in(result):
                self._taken.pop(address(one), None)
        taken = _taken(name, args)
        if taken is not None and torch.is_grad_enabled():
            source, index = taken
            large = result.numel() >= max(_LEAST_ELEMENTS, _LEAST_TIMES * source.numel())
            if large and result.is_floating_point() and address(result):
                self._taken[address(result)] = index, len(source), name

    def _product(self, first, second):
        for weights, rows, at_right in ((second, first, True), (first, second, False)):
            index, matrices, taken_by = self._taken.get(address(weights), (None, 0, ""))
            if index is None or len(weights) != index.numel():
                continue
            each = rows.shape[1] if at_right else rows.shape[2]
            if each > _MOST_ROWS:
                continue
            shape = tuple(weights.shape[1:]) if at_right else tuple(weights.shape[:0:-1])
            kind = (len(weights), each, shape, matrices, taken_by), (weights.dtype, weights.device, rows.requires_grad)
            self._calls[kind] += 1
            self._indices.setdefault(kind, index.clone())  # the program may write into it
            if kind not in self._lines:
                self._lines[kind] = self._line()

    def found(self):
        most = sorted(self._calls, key=lambda kind: -self._calls[kind] * kind[0][0] * math.prod(kind[0][2]))
        found = [_told(kind, self._calls[kind], self._indices[kind], self._lines[kind]) for kind in most[:_MOST_KINDS]]
        return [one for one in found if one]


def _taken(name, args):
    """What rows are taken from, and their index; None: the operator takes none."""
    if name == "index":
        index = args[1][0] if args[1] else None
        if any(one is not None for one in args[1][1:]):
            return None
    elif name == "index_select":
        index = args[2] if args[1] == 0 else None
    elif name == "embedding":
        index = args[1]
    else:
        return None
    whole = index is not None and index.dtype in (torch.int64, torch.int32)
    return (args[0], index) if whole and args[0].dim() > 1 else None


def _told(kind, calls, index, line):
    (rows, each, (inputs, outputs), matrices, taken_by), (dtype, device, gradients) = kind
    index = index.reshape(-1) % matrices  # some may count from the end
    distinct = len(torch.unique(index))
    if rows < _LEAST_TIMES * distinct:
        return None
    found: Any = {
        "calls": calls,
        "input": [rows * each, inputs],
        "matrix": [inputs, outputs],
        "matrices": distinct,
        "lines": [[*line[:3], calls]] if line and line[0] else [],
    }
    size = torch.empty(0, dtype=dtype).element_size() * (3 * inputs * outputs + 8 * each * inputs)  # of a row
    timed = min(rows, memory_room.for_copies() // size)

    def times():
        chosen = index[:timed]
        source = torch.ones(timed, each, inputs, dtype=dtype, device=device, requires_grad=gradients)
        weights = torch.ones(matrices, inputs, outputs, dtype=dtype, device=device, requires_grad=True)
        both = both_ways.timed(
            lambda: torch.bmm(source, weights[chosen] if taken_by == "index" else weights.index_select(0, chosen)),
            lambda: sorted_products(source, weights, chosen),
            [one for one in (source, weights) if one.requires_grad],
        )
        # A matrix of more rows takes less time for each.
        every = [[round(ns * rows / timed) for ns in way] for way in both]
        return dict(zip(("plain_ns", "joined_ns"), every))

    return both_ways.told(found, size * _LEAST_TIMES * distinct, times)


def sorted_products(source, weights, index):
    """What ``torch.bmm(source, weights[index])`` gives, but for rounding: one product for each matrix.

    Args:
        source: n x k x inputs.
        weights: matrices x inputs x outputs.
        index: n, of the matrix of each.
    """
    order = torch.argsort(index, stable=True)
    sizes = torch.bincount(index, minlength=len(weights)).tolist()
    parts = zip(source[order].split(sizes), weights.unbind(0))
    found = torch.cat([part @ weight for part, weight in parts if len(part)])
    return torch.empty_like(found).index_copy(0, order, found)
