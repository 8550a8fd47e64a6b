"""The breakdown of fetch time that several causes use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.measure.loader_stats import LoaderStats, mean_s
from flatout.results import Evidence, Line
from flatout.units import duration, percent


@dataclass(frozen=True)
class Split:
    """A mean fetch of one batch: seconds, and shares of it that add up to 1. None: not measured."""

    fetch_s: float
    cpu: float | None
    runqueue: float | None
    blocked: float | None

    def evidence(self) -> Evidence:
        """The division as one sentence."""
        if self.cpu is None or self.blocked is None:
            return Evidence(f"a batch takes {duration(self.fetch_s)} to fetch", {"fetch_s": self.fetch_s})
        runqueue = self.runqueue or 0.0
        text = (
            f"a batch takes {duration(self.fetch_s)} to fetch: {percent(self.cpu)} on a core, "
            f"{percent(runqueue)} waiting for a core, {percent(self.blocked)} blocked"
        )
        values: dict[str, float | int | str] = {
            "fetch_s": self.fetch_s,
            "cpu": self.cpu,
            "runqueue": runqueue,
            "blocked": self.blocked,
        }
        return Evidence(text, values)


def split(loader: LoaderStats) -> Split:
    """Divide the mean fetch."""
    fetch_s = mean_s(loader.fetch.wall_s)

    def part(values: NDArray[np.float64] | None) -> float | None:
        return None if values is None else (mean_s(values) / fetch_s if fetch_s > 0 else 0.0)

    return Split(fetch_s, part(loader.fetch.cpu_s), part(loader.fetch.runqueue_s), part(loader.fetch.blocked_s))


def hottest(lines: Iterable[Line], count: int = 1) -> tuple[Evidence, ...]:
    """The lines with most samples, as evidence."""
    return tuple(
        Evidence(
            f"{place(line)} {(line.source.strip() or line.function).rstrip(':')}: {duration(line.seconds)}",
            {"file": line.file, "line": line.line, "seconds": line.seconds},
        )
        for line in list(lines)[:count]
    )


def place(line: Line) -> str:
    """``file:line``; for an installed package, relative to site-packages."""
    return f"{re.split(r'/(?:site|dist)-packages/', line.file)[-1]}:{line.line}"
