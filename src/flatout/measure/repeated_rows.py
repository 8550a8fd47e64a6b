"""Products whose rows repeat, or whose columns the same weight has multiplied before, in steps after the window."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.record import ProcessRecord
from flatout.results import Line


@dataclass(frozen=True)
class RepeatedRows:
    """What splitting the weights of such products would save in a step.

    Attributes:
        part: of the time of all operators, with those that put the rows together and their backward passes; 0..1.
        products: in a step.
        times: how often the values of a row are there, at the most.
        lines: that call the products, with the seconds of these in the forward pass, most first.
    """

    part: float
    products: int
    times: float
    lines: tuple[Line, ...]


def read_repeated_rows(process: ProcessRecord) -> RepeatedRows | None:
    """Those of the training process; None: there are none, or nobody looked."""
    seen = process.info.get("repeated_rows")
    if not seen or not seen["ns"]:
        return None
    lines = (Line(file, line, function, "", ns / 1e9) for file, line, function, ns, _ in seen["lines"])
    return RepeatedRows(min(seen["needless_ns"] / seen["ns"], 1.0), seen["products"], seen["times"], tuple(lines))
