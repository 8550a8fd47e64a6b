"""Lines that take or write one part of a tensor after the other, in steps after the window."""

from typing import Any

import torch

from ..recorder import REC

_TAKE = ("select", "slice", "narrow", "index", "index_select")
_WRITE = ("copy_", "fill_", "masked_fill_", "zero_", "add_", "mul_")
_MOST_OF_WHOLE = 0.5  # of the memory, that a part takes
_LEAST, _MOST_LINES = 8, 4


class SliceLines:
    """Counts such lines.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
    """

    def __init__(self, line):
        self._line = line
        self.begin()

    def begin(self):
        """A step begins."""
        self._takes: Any = {}
        self._writes: Any = {}

    def look(self, name, args):
        """Look at an operator that has run, and is no part of a backward pass."""
        if name in _TAKE:
            if torch.is_grad_enabled() and args[0].requires_grad:
                self._count(self._takes)
        elif name in _WRITE and _is_part(args[0]):
            self._count(self._writes)

    def _count(self, counts):
        where = self._line()
        counts[where] = counts.get(where, 0) + 1

    def save(self):
        """Write into the record what the step showed."""
        found = {"slice_takes": _most(self._takes), "slice_writes": _most(self._writes)}
        found = {name: lines for name, lines in found.items() if lines}
        if found:
            REC.save_process(**found)


def _is_part(tensor):
    strided = tensor.layout is torch.strided
    return strided and tensor.nbytes <= _MOST_OF_WHOLE * tensor.untyped_storage().nbytes()


def _most(counts):
    most = sorted(counts.items(), key=lambda item: -item[1])[:_MOST_LINES]
    return [[*where[:3], count] for where, count in most if where and where[0] and count >= _LEAST]
