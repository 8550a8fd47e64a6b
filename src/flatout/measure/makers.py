"""Processes of the training's own that make its input: how many, their use of the cores, their memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

Sample = dict[str, Any]

# Mean cores of a process that makes input; one that only tracks resources, or waits, uses less.
_LEAST_CORES = 0.02


@dataclass(frozen=True)
class Makers:
    """Child processes of the training that compute, none of them a DataLoader's worker."""

    processes: int
    cores: float  # mean, of all together
    runqueue_share: float | None  # of the time, in which one of them was ready and had no core; None: not measured
    bytes_each: int | None  # host memory of the typical one at its largest, pages it shares with others included

    @property
    def busy(self) -> float:
        """Share of the time in which one of them is on a core or waits for one, at most 1."""
        return min(self.cores / self.processes + (self.runqueue_share or 0.0), 1.0)


def find_makers(samples: Iterable[Sample], begin_ns: int, end_ns: int, children: Collection[int]) -> Makers | None:
    """The makers in a window; None: no child of the training computed.

    Args:
        samples: of the machine, in time order.
        begin_ns: CLOCK_MONOTONIC, as is ``end_ns``.
        end_ns: end of the window.
        children: processes that the training started, without the DataLoader's workers.
    """
    wanted = frozenset(children)
    cores, waits, sizes = [], [], []
    for seen in _by_process(samples, begin_ns, end_ns, wanted).values():
        (first_ns, first), (last_ns, last) = seen[0], seen[-1]
        span_s = (last_ns - first_ns) / 1e9
        used = (last["cpu_s"] - first["cpu_s"]) / span_s if span_s > 0 else 0.0
        if used < _LEAST_CORES:
            continue
        cores.append(used)
        if first.get("runqueue_s") is not None and last.get("runqueue_s") is not None:
            waits.append((last["runqueue_s"] - first["runqueue_s"]) / span_s)
        sizes.append(max(entry["rss"] for _, entry in seen))
    if not cores:
        return None
    queued = min(fmean(waits), 1.0) if len(waits) == len(cores) else None
    return Makers(len(cores), sum(cores), queued, int(median(sizes)))


def _by_process(
    samples: Iterable[Sample], begin_ns: int, end_ns: int, wanted: frozenset[int]
) -> dict[int, list[tuple[int, Sample]]]:
    seen: dict[int, list[tuple[int, Sample]]] = {}
    for sample in samples:
        if begin_ns <= sample["t"] <= end_ns:
            for entry in sample.get("processes") or ():
                if entry["pid"] in wanted:
                    seen.setdefault(entry["pid"], []).append((sample["t"], entry))
    return seen
