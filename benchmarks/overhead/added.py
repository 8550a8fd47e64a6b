"""What a tool adds to a step: differences to the bare run of the same round, and their spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runs import Cell, Reading
from tools import BARE


@dataclass(frozen=True)
class Spread:
    """Median and extremes of repetitions."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Summarise at least one value."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1], len(ordered))


@dataclass(frozen=True)
class Cost:
    """One tool in one cell.

    Attributes:
        step_s: The bare run's median step in the same rounds.
        added_s: Median step with the tool less the bare one's, round by round.
        added_mean_s: The same from mean steps: it also counts rare stalls, such as a sampler's.
        added_cpu_s: CPU time of the training process, all its threads, a step: what is added whether or not it is
            waited for. Other load on the machine moves it least.
        peak_rss_bytes: Of the training process, median; None: not measured.
        bare_rss_bytes: Of the bare training process in the same rounds.
        record_bytes_per_1000_steps: Size on disk of what the tool left, median.
    """

    tool: str
    cell: Cell
    step_s: float
    added_s: Spread
    added_mean_s: Spread
    added_cpu_s: Spread
    peak_rss_bytes: float | None
    bare_rss_bytes: float | None
    record_bytes_per_1000_steps: float

    @property
    def share(self) -> float:
        """Added to the median step, as a share of the bare step."""
        return self.added_s.median / self.step_s

    @property
    def mean_share(self) -> float:
        """Added to the mean step, as a share of the bare step."""
        return self.added_mean_s.median / self.step_s


def cost(readings: Sequence[Reading], tool: str, cell: Cell) -> Cost | None:
    """The cost of ``tool`` over the rounds in which both it and the bare script ran; None without such rounds."""
    bare = {reading.round: reading for reading in readings if reading.cell == cell and reading.tool == BARE}
    pairs = [
        (reading, bare[reading.round])
        for reading in readings
        if reading.cell == cell and reading.tool == tool and reading.round in bare
    ]
    if not pairs:
        return None
    return Cost(
        tool=tool,
        cell=cell,
        step_s=statistics.median(before.median_s for _, before in pairs),
        added_s=Spread.of(reading.median_s - before.median_s for reading, before in pairs),
        added_mean_s=Spread.of(reading.mean_s - before.mean_s for reading, before in pairs),
        added_cpu_s=Spread.of(reading.cpu_s - before.cpu_s for reading, before in pairs),
        peak_rss_bytes=_median_or_none([reading.peak_rss_bytes for reading, _ in pairs]),
        bare_rss_bytes=_median_or_none([before.peak_rss_bytes for _, before in pairs]),
        record_bytes_per_1000_steps=statistics.median(reading.record_bytes for reading, _ in pairs) / cell.steps * 1000,
    )


def _median_or_none(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
