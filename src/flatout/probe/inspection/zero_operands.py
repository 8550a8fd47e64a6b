"""Matrices in products that are almost all zeros: one-hot rows, bags of words, the adjacency of a graph."""

from typing import Any

import torch

from ..recorder import REC

# Place of the two matrices among the arguments.
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
_LEAST_ELEMENTS = 1 << 16  # of smaller ones a product is short
_MOST_ELEMENTS = 1 << 28  # that are counted in a step
_MOST_NONZERO = 0.1  # of a matrix's elements
_MOST_SHAPES = 8


class ZeroOperands:
    """Counts the zeros of matrices that are multiplied, in the steps that it is shown.

    What depends on parameters is never counted: activations and their gradients may be zero in one step and not in the
    next. In a backward pass, the matrices that were counted in the forward pass appear again.
    """

    def __init__(self):
        self._shapes: Any = {}  # shape -> products, those with a matrix of zeros, its elements, those that are not zero
        self._counted: Any = {}  # address and elements of a matrix of this step -> elements that are not zero
        self._left = _MOST_ELEMENTS

    def look(self, name, args, backward):
        """Look at an operator before it runs.

        Args:
            name: of the operator, without its overload.
            args: as it was called.
            backward: it is a part of a backward pass.
        """
        first = _PRODUCTS.get(name)
        for matrix in args[first : first + 2] if first is not None else ():
            if matrix.layout is torch.strided and matrix.numel() >= _LEAST_ELEMENTS:
                self._note(matrix, backward)

    def _note(self, matrix, backward):
        elements = matrix.numel()
        key = matrix.data_ptr(), elements
        if key not in self._counted and not backward and not matrix.requires_grad and self._left >= elements:
            self._left -= elements
            self._counted[key] = int(torch.count_nonzero(matrix))
        nonzero = self._counted.get(key, elements)
        found = self._shapes.setdefault(tuple(matrix.shape), [0, 0, 0, 0])
        found[0] += 1
        if nonzero <= _MOST_NONZERO * elements:
            found[1:] = [found[1] + 1, found[2] + elements, found[3] + nonzero]

    def end(self):
        """End a step: the next one has other tensors at the same addresses."""
        self._counted.clear()
        self._left = _MOST_ELEMENTS

    def save(self):
        """Write into the record what the steps showed."""
        most = sorted(self._shapes.items(), key=lambda item: -item[1][2])[:_MOST_SHAPES]
        found = [[list(shape), *counts] for shape, counts in most if counts[1]]
        if found:
            REC.save_process(zero_operands=found)
