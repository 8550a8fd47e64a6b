"""Passes of a step whose result is only read, as one step after the window shows them."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.record import ProcessRecord
from flatout.results import Line


@dataclass(frozen=True)
class ReadValues:
    """What a step computes only for numbers that the program reads: no gradient of it reaches a weight.

    Attributes:
        part: of the time of all operators, 0..1.
        lines: that read the numbers, the most time first, with the seconds of what was computed for each in a step.
    """

    part: float
    lines: tuple[Line, ...] = ()


def read_read_values(process: ProcessRecord) -> ReadValues | None:
    """What the step showed; None: nothing was only read, or nobody looked."""
    seen = process.info.get("read_values") or {}
    if not seen.get("alone_ns") or not seen.get("ns"):
        return None
    lines = tuple(Line(file, line, function, "", ns / 1e9) for file, line, function, ns in seen["lines"])
    return ReadValues(min(seen["alone_ns"] / seen["ns"], 1.0), lines)
