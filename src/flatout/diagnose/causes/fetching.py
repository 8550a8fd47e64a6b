"""How the time of fetches divides, as several causes need it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.functions import STORAGE_GROUPS
from flatout.diagnose.loading import Loading
from flatout.diagnose.result import Evidence, Line, NotMeasured
from flatout.diagnose.thresholds import DOMINANT_SHARE, MATERIAL_SHARE, NOISE_SHARE
from flatout.diagnose.view import View
from flatout.diagnose.wording import duration, percent
from flatout.predict.pipeline import Change
from flatout.predict.rate_model import RateModel, fit

# Function groups of Loading.cpu_groups and Loading.blocked_groups.
DECODE_GROUPS = ("decode", "decompress")
# Whatever else a data set computes for a sample is its own preparation.
TRANSFORM_GROUPS = ("transform", "convert", "other")


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


def data_of(view: View, id: str) -> tuple[Loading, RateModel] | NotMeasured | None:
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


def split(loading: Loading) -> Split:
    """Divide the mean fetch."""
    fetch_s = _mean(loading.fetch_s)

    def part(values: NDArray[np.float64] | None) -> float | None:
        return None if values is None else (_mean(values) / fetch_s if fetch_s > 0 else 0.0)

    return Split(fetch_s, part(loading.fetch_cpu_s), part(loading.fetch_runqueue_s), part(loading.fetch_blocked_s))


def collate_share(loading: Loading) -> float:
    """Part of a fetch that puts its samples together, 0..1."""
    fetch_s = _mean(loading.fetch_s)
    return min(_mean(loading.collate_s) / fetch_s, 1.0) if fetch_s > 0 else 0.0


def helped(loading: Loading) -> bool:
    """Whether fetches that stand still mostly wait for other threads of their worker, which compute for them.

    Libraries such as pyarrow and blosc unpack in threads of their own; the fetching thread waits for these.
    """
    if loading.fetch_process_cpu_s is None or loading.fetch_cpu_s is None or loading.fetch_blocked_s is None:
        return False
    blocked_s = _mean(loading.fetch_blocked_s)
    if blocked_s < MATERIAL_SHARE * _mean(loading.fetch_s):
        return False  # the thread that sends the batch before computes as well
    return _mean(loading.fetch_process_cpu_s) - _mean(loading.fetch_cpu_s) >= DOMINANT_SHARE * blocked_s


def storage_share(loading: Loading) -> float:
    """Share of the blocked time that waits for bytes."""
    return group_share(loading.blocked_groups, ("read", "network") if helped(loading) else STORAGE_GROUPS)


def without_groups(loading: Loading, groups: Iterable[str], part: float = 1.0) -> Change:
    """The change of taking ``part`` of what these groups of functions compute off the fetches.

    Groups are of the fetch without its collate. Where other threads of the worker compute for it, blocked time in
    these groups is theirs.
    """
    wanted = tuple(groups)
    on_core = part * group_share(loading.cpu_groups, wanted) * (1.0 - collate_share(loading))
    if not helped(loading):
        return Change(fetch_cpu_factor=1.0 - on_core)
    waited = part * group_share(loading.blocked_groups, wanted)
    return Change(fetch_cpu_factor=1.0 - on_core, fetch_blocked_factor=1.0 - waited, helper_cpu_factor=1.0 - waited)


def without_reading(loading: Loading, part: float = 1.0) -> Change:
    """The change of having ``part`` of the bytes at hand: no waiting for them, and no client that asks a network."""
    client = group_share(loading.cpu_groups, ("network",))
    return Change(fetch_blocked_factor=1.0 - part * storage_share(loading), fetch_cpu_factor=1.0 - part * client)


def group_share(groups: dict[str, float], names: Iterable[str]) -> float:
    """Summed share of some function groups."""
    return sum(groups.get(name, 0.0) for name in names)


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
