"""Lines that take or write one part of a tensor after the other, as a step after the window shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flatout.record import ProcessRecord


@dataclass(frozen=True)
class SliceLine:
    """A line of the user's, and how many parts it takes or writes in a step."""

    file: str
    line: int
    function: str
    parts: int


def read_slice_lines(process: ProcessRecord, what: Literal["slice_takes", "slice_writes"]) -> tuple[SliceLine, ...]:
    """Those of the training process, most parts first; what is written may have no gradient."""
    return tuple(SliceLine(*seen) for seen in process.info.get(what) or ())
