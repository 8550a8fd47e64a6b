"""The lines of the user's code that copy tensors into another memory layout."""

from __future__ import annotations

import re

from flatout.measure.measured_run import MeasuredRun
from flatout.measure.samples import TOP_LINES
from flatout.results import Line

# Calls that copy a tensor whose dimensions were put in another order.
_CONVERTING = re.compile(
    r"\.(contiguous|clone|reshape|flatten|to|copy_|permute|transpose|movedim|swapaxes)\(|\brearrange\(|memory_format"
)


def converting_lines(run: MeasuredRun) -> tuple[Line, ...]:
    """Of the hottest lines of the forward pass and the loss, those that call such a copy."""
    lines = (line for account in ("forward", "loss") for line in run.lines(account, TOP_LINES))
    return tuple(line for line in lines if _CONVERTING.search(line.source))
