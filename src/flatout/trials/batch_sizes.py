"""What ``flatout batch-size`` measured: plain objects for the terminal and JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flatout.compare.ratio import Ratio, ratio_of
from flatout.compare.speed import Speed
from flatout.errors import Interrupted
from flatout.predict.learning_rate import Scaling
from flatout.trials.locations import SettingLocations
from flatout.trials.outcome import OK, TrialRun
from flatout.trials.try_result import Memory

WITHIN = 0.05  # what the knee may lack of the best speed


@dataclass
class SizeRuns:
    """One batch size with its runs.

    Attributes:
        size: samples in a batch.
        runs: those that count.
        failed: the run that does not count, which is the last one; None: all count.
        memory: the most in use in any of the runs.
        why: it was not run, or its runs ended.
    """

    size: int
    runs: list[TrialRun] = field(default_factory=list)
    failed: TrialRun | None = None
    memory: Memory = field(default_factory=Memory)
    why: str = ""

    @property
    def outcome(self) -> str:
        """OK, or why it does not count; "not run" if it was not."""
        if self.failed is not None:
            return self.failed.outcome
        return OK if self.runs else "not_run"

    @property
    def speeds(self) -> list[Speed]:
        """Of the runs, in samples/s; a step whose samples are unknown has as many as the batch size says."""
        known = [run.speed for run in self.runs if run.speed is not None]
        return [
            speed if speed.batch else replace(speed, rate=speed.rate * self.size, unit="samples/s", batch=self.size)
            for speed in known
        ]

    @property
    def rate(self) -> float:
        """Samples a second, middle of the runs; 0.0 without one."""
        return statistics.median([speed.rate for speed in self.speeds] or [0.0])

    @property
    def step_s(self) -> float:
        """Seconds from step to step, at the rate; NaN without one."""
        batch = statistics.median([speed.batch or self.size for speed in self.speeds] or [self.size])
        return batch / self.rate if self.rate else math.nan

    @property
    def waits(self) -> float | None:
        """Share of the time in which the training waited for batches, middle of the runs; None without one."""
        shares = [speed.ledger.share("batch_wait") for speed in self.speeds]
        return statistics.median(shares) if shares else None

    def against(self, other: SizeRuns) -> Ratio | None:
        """Samples/s of this size over those of another, from runs taken in turn; None without a pair."""
        if not self.runs or not other.runs:
            return None
        return ratio_of(other.speeds, self.speeds)


@dataclass(frozen=True)
class BatchSizes:
    """The result of a search.

    Attributes:
        command: the user's.
        own: the batch size that it has.
        sizes: all that were looked at, smallest first.
        knee: the smallest that lacks at most WITHIN of the best speed.
        best: the fastest.
        certain: the interval of the knee's speed over the best, and those of the smaller sizes, leave no doubt.
        limit: why no larger size was measured.
        larger_gain: samples/s still grew at the largest size.
        scaling: of the learning rate from ``own`` to ``knee``.
        optimizer: class of the training's optimizer; None: not seen.
        samples: of a pass over the data; None: not known.
        drop_last: a last batch that is not full is left out.
        ranks: processes that train together, each with a batch of its own.
        settings: that make the training have the knee, as ``--set`` takes them.
        located: where the user's own command or config has it; None: nowhere.
        memory_line: host or GPU bytes at size 0 and for each sample, and whose; None: not measured.
        ended: why the search ended before it was done; empty: it was done.
        isolation: how the user's files were kept as they are.
        seconds: that it took.
        log: file with the output of a run that failed; empty: none did.
        interrupted: by whom; None: nobody.
    """

    command: tuple[str, ...]
    own: int
    sizes: tuple[SizeRuns, ...]
    knee: SizeRuns
    best: SizeRuns
    certain: bool
    limit: str
    larger_gain: bool
    scaling: Scaling
    optimizer: str | None
    samples: int | None
    drop_last: bool
    ranks: int
    settings: Mapping[str, Any]
    located: SettingLocations | None
    memory_line: MemoryLine | None
    ended: str
    isolation: str
    seconds: float
    log: str = ""
    interrupted: Interrupted | None = None

    def found(self, size: int) -> SizeRuns | None:
        """The size with its runs, if it was looked at."""
        return next((one for one in self.sizes if one.size == size), None)

    @property
    def gain(self) -> Ratio | None:
        """Samples/s of the knee over those of the command's own size; None where they are one, or were not measured."""
        own = self.found(self.own)
        return self.knee.against(own) if own is not None and own is not self.knee else None

    def steps(self, size: int) -> int | None:
        """Steps of a pass over the data; None: its length is not known."""
        if self.samples is None:
            return None
        each = self.samples / (size * self.ranks)
        return math.floor(each) if self.drop_last else math.ceil(each)


@dataclass(frozen=True)
class MemoryLine:
    """memory(b) = base + slope x b, least squares through what was measured.

    Attributes:
        of: "GPU" or "host".
        base_bytes: at size 0.
        slope_bytes: for each sample.
        total_bytes: of the GPU, or what the host or its control group allows; None: not known.
    """

    of: str
    base_bytes: float
    slope_bytes: float
    total_bytes: int | None

    def at(self, size: int) -> float:
        """Bytes at a batch size: a prediction."""
        return self.base_bytes + self.slope_bytes * size

    def largest(self) -> int | None:
        """The largest size that fits; None: nothing grows, or the total is not known."""
        if self.total_bytes is None or self.slope_bytes <= 0:
            return None
        return max(int((self.total_bytes - self.base_bytes) / self.slope_bytes), 0)


def memory_line(sizes: Sequence[SizeRuns], host_total: int | None, device_total: int | None) -> MemoryLine | None:
    """Through the peaks of the measured sizes: of the GPU if one was used, else of the host; None below two sizes."""
    on_device = [(one.size, one.memory.device_bytes) for one in sizes if one.runs and one.memory.device_bytes]
    on_host = [(one.size, one.memory.host_bytes) for one in sizes if one.runs and one.memory.host_bytes]
    for of, points, total in (("GPU", on_device, device_total), ("host", on_host, host_total)):
        if len(points) >= 2:
            slope, base = statistics.linear_regression(*zip(*points, strict=True))
            return MemoryLine(of, base, slope, total)
    return None
