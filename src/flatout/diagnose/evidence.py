"""The breakdown of fetch time that several causes use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.measure.loader_stats import LoaderStats, mean_s
from flatout.predict.context import Context
from flatout.predict.measured import with_the_input_there
from flatout.probe.contract import REPLAYED
from flatout.results import Evidence, Line
from flatout.units import duration, percent, three_figures


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


def after_the_window(context: Context) -> tuple[Evidence, ...]:
    """What steps with the input already there, and the loader alone, have shown; empty: nothing was measured."""
    found = []
    text, replayed = with_the_input_there(context), context.run.last_steps.replayed
    if text is not None and replayed is not None:
        values = {"replayed_s": replayed.step_s, "low_s": replayed.low_s, "high_s": replayed.high_s}
        found.append(Evidence(text, {**values, "workers_idle": int(replayed.idle)}))
    elif REPLAYED in context.run.last_steps.skipped:
        because = context.run.last_steps.skipped[REPLAYED]
        found.append(Evidence(f"steps with the input already there were not measured: {because}"))
    new, again = context.run.last_steps.loader_bps, context.run.last_steps.again_bps
    if new is not None:
        repeated = "" if again is None else f", {three_figures(again)} of the same ones again"
        text = f"the loader alone, while nothing computed, made {three_figures(new)} new batches a second{repeated}"
        rates = {"loader_bps": new, "again_bps": "not measured" if again is None else again}
        found.append(Evidence(text, rates))
    return tuple(found)
