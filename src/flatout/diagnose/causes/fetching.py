"""How the time of fetches divides, as several causes need it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.rate_model import RateModel, fit
from flatout.results import Evidence, Line, NotMeasured
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


def data_of(view: MeasuredRun, id: str) -> tuple[LoaderStats, RateModel] | NotMeasured | None:
    """The loader and the fitted model, or why a cause in the data path cannot be judged.

    None: it cannot apply, because input that comes from no DataLoader holds nothing up.
    """
    if view.loading is None:
        if view.ledger.share("batch_wait") < NOISE_SHARE:
            return None
        return NotMeasured(id, "no DataLoader was iterated between the first and the last training step")
    model = fit(view)
    if model is None:
        return NotMeasured(id, "no training step was seen after the first one")
    if len(view.loading.fetch_s) == 0:
        return NotMeasured(id, "no fetch of a batch was recorded between the first and the last training step")
    return view.loading, model


def split(loading: LoaderStats) -> Split:
    """Divide the mean fetch."""
    fetch_s = _mean(loading.fetch_s)

    def part(values: NDArray[np.float64] | None) -> float | None:
        return None if values is None else (_mean(values) / fetch_s if fetch_s > 0 else 0.0)

    return Split(fetch_s, part(loading.fetch_cpu_s), part(loading.fetch_runqueue_s), part(loading.fetch_blocked_s))


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
    """``file:line``; of an installed package without the folder that all of them lie in."""
    return f"{re.split(r'/(?:site|dist)-packages/', line.file)[-1]}:{line.line}"


def _mean(values: NDArray[np.float64]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
