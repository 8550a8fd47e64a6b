"""Step lines, folded into epochs while they are read; their times come from what they print, or from their clocks."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from flatout.logs.facts import EpochTime
from flatout.logs.observations import Observation, Source
from flatout.units import counted, short

PAUSE = 5.0  # times the usual step
LONGEST_PAUSE_S = 30 * 86400.0  # between two lines of one run


@dataclass(slots=True)
class Steps:
    """Step lines of one epoch, or of all where the lines name none."""

    source: Source
    count: int = 0
    step_s: float = 0.0
    data_s: float = 0.0
    with_data: int = 0
    total: float | None = None
    last: float = 0.0
    samples_s: float = 0.0
    with_samples: int = 0
    first_time: tuple[float, float] | None = None
    last_time: tuple[float, float] | None = None
    kept: list[float] = field(default_factory=list)
    intervals: list[float] = field(default_factory=list)  # seconds a step between lines with times
    restarts: int = 0
    clock_set: int = 0  # times that the clock went back, or ahead by more than any pause

    def add(self, one: Observation) -> None:
        """Take a line; a line with running means replaces what came before it."""
        values = one.values
        if values.get("mean"):
            self.count = self.with_data = self.with_samples = 0
            self.step_s = self.data_s = self.samples_s = 0.0
        step = values.get("step", self.last + 1)
        if "step_s" in values:
            self.count += 1
            self.step_s += values["step_s"]
            if len(self.kept) < 4096:
                self.kept.append(values["step_s"])
        if "data_s" in values:
            self.with_data += 1
            self.data_s += values["data_s"]
        if "samples_s" in values:
            self.with_samples += 1
            self.samples_s += values["samples_s"]
        self.total, self.last = values.get("total", self.total), max(self.last, step)
        if one.time_s is not None:
            self._take_time(step, one.time_s)

    def epoch_time(self, epoch: float | None, means: bool) -> EpochTime | None:
        """As a pass; None: the lines tell no time."""
        begin = self.first_time[0] if self.first_time and not self.count else 0.0
        steps = self.last - begin + (1 if self.total and self.last == self.total - 1 else 0)
        step_s = self.step_s / self.count if self.count else self._from_times()
        if step_s is None or step_s <= 0:
            return None
        waiting = self.data_s / self.with_data / step_s if self.with_data else None
        return EpochTime(
            self.source,
            epoch,
            step_s * steps,
            steps,
            self.total,
            1 / step_s,
            self.samples_s / self.with_samples if self.with_samples else None,
            min(waiting, 1.0) if waiting is not None else None,
            () if means else tuple((self.kept or self.intervals)[-256:]),
            of="step lines",
            begin=begin,
        )

    def _take_time(self, step: float, time_s: float) -> None:
        """Time since the last line with one; a counter that goes back has started again."""
        if self.last_time is not None:
            steps, seconds = step - self.last_time[0], time_s - self.last_time[1]
            self.restarts += steps < 0
            clock_set = seconds < 0 or seconds > LONGEST_PAUSE_S
            self.clock_set += clock_set
            if steps > 0 and not clock_set and len(self.intervals) < 4096:
                self.intervals.append(seconds / steps)
        self.first_time = self.first_time or (step, time_s)
        self.last_time = (step, time_s)

    def _from_times(self) -> float | None:
        """Mean time of a step between the first and the last line, pauses included."""
        if self.clock_set and self.intervals:  # a clock that was put back is put right again: no interval of such size
            usual = statistics.median(self.intervals)
            self.intervals = [one for one in self.intervals if one <= max(PAUSE * usual / 2, usual)]
        if self.first_time is None or self.last_time is None or self.restarts or self.clock_set:
            return statistics.fmean(self.intervals) if self.intervals else None
        (first, begin), (last, end) = self.first_time, self.last_time
        return (end - begin) / (last - first) if last > first and end > begin else None

    def notes(self) -> list[str]:
        """Restarts, and pauses such as evaluations and checkpoints."""
        found = [f"its step counter goes back {self.restarts} times: the run was restarted"] if self.restarts else []
        if self.clock_set and not self.count:
            found.append(f"its clock was set {counted(self.clock_set, 'time')}: what lies across is left out")
        if not self.count and len(self.intervals) >= 10:
            usual = statistics.median(self.intervals)
            pauses = [one for one in self.intervals if one > max(PAUSE * usual, usual + 1.0)]
            if pauses:
                found.append(
                    f"{len(pauses)} pauses of {min(pauses):.1f} to {max(pauses):.1f} s "
                    f"between steps of {short(usual)} s"
                )
        return found
