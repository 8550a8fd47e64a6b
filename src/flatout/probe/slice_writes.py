"""Lines that write into one part of a tensor after the other, in steps after the window."""

from typing import Any

import torch

from .recorder import REC

_WRITE = ("copy_", "fill_", "masked_fill_", "zero_", "add_", "mul_")
_MOST_OF_WHOLE = 0.5  # of the memory, that a part takes
_LEAST_WRITES, _MOST_LINES = 8, 4


class SliceWrites:
    """Counts such writes by line.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
    """

    def __init__(self, line):
        self._line = line
        self._counts: Any = {}

    def begin(self):
        """A step begins."""
        self._counts = {}

    def look(self, name, args):
        """Look at an operator that has run, and is no part of a backward pass."""
        if name not in _WRITE or args[0].layout is not torch.strided:
            return
        if args[0].nbytes <= _MOST_OF_WHOLE * args[0].untyped_storage().nbytes():
            where = self._line()
            self._counts[where] = self._counts.get(where, 0) + 1

    def save(self):
        """Write into the record what the step showed."""
        most = sorted(self._counts.items(), key=lambda item: -item[1])[:_MOST_LINES]
        found = [[*where[:3], count] for where, count in most if where and where[0] and count >= _LEAST_WRITES]
        if found:
            REC.save_process(slice_writes=found)
