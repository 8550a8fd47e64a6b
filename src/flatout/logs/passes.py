"""Progress bars and step lines, folded into passes over the data while they are read."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field

from flatout.logs.facts import EpochTime
from flatout.logs.observations import Observation, Source

MOST_POINTS = 64
MOST_PASSES, MOST_KINDS = 20_000, 256
PAUSE = 5.0  # times the usual step
# Bars that are not the training.
OTHER = re.compile(
    r"(?i)\b(?:val|valid|validat\w*|eval\w*|test\w*|sanity|predict\w*|infer\w*|download\w*|load\w*|map|filter|token\w*"
    r"|generating|generation|cop(?:y|ying)|extract\w*|shards?|fetch\w*|saving|save|writ\w*|read\w*"
    r"|scan\w*|caching|cache|prepar\w*|mean|cali\w*)"
)
EPOCHS_BAR = re.compile(r"(?i)^(?:epochs?|training epochs?|total)\W*$")
_NAME = re.compile(r"\d+")


@dataclass(slots=True)
class Bar:
    """One pass of a bar, as far as it has come."""

    source: Source
    epoch: float | None
    total: float | None
    n: float = 0.0
    elapsed_s: float = 0.0
    its: float | None = None
    points: list[tuple[float, float]] = field(default_factory=list)
    _stride: int = 1
    _seen: int = 0

    def add(self, values: dict[str, float], source: Source) -> None:
        """Take its next state; of many states, every so-manieth is kept as a point."""
        self.n, self.elapsed_s, self.source = values["n"], values["elapsed_s"], source
        self.its = values.get("its", self.its)
        self._seen += 1
        if self._seen % self._stride == 0:
            self.points.append((self.n, self.elapsed_s))
            if len(self.points) >= MOST_POINTS:
                self.points = self.points[1::2]
                self._stride *= 2

    def blocks(self, most: int = 12) -> tuple[float, ...]:
        """Seconds a step of up to ``most`` consecutive parts; clocks of whole seconds need some seconds each."""
        least_s = max(self.elapsed_s / most, 4.0)
        found, (n, at) = [], (0.0, 0.0)
        for next_n, next_at in (*self.points, (self.n, self.elapsed_s)):
            if next_n > n and next_at - at >= least_s:
                found.append((next_at - at) / (next_n - n))
                n, at = next_n, next_at
        return tuple(found)


class Bars:
    """All bars of a file."""

    def __init__(self) -> None:
        self._passes: dict[tuple[str, float | None], list[EpochTime]] = {}
        self.planned: tuple[float, Source] | None = None
        self._open: dict[tuple[str, float | None], Bar] = {}
        self._zero = False
        self._epochs: list[tuple[float, float, Source]] = []

    def add(self, one: Observation, source: Source) -> None:
        """Take a state of a bar."""
        values, name = one.values, one.labels["bar"]
        if OTHER.search(name) or one.labels["unit"].endswith("B"):
            return
        if EPOCHS_BAR.match(name) and "epoch" not in values and values.get("total", 1e9) < 5000:
            self.planned = (values["total"], source)
            if not self._epochs or values["n"] > self._epochs[-1][0]:
                self._epochs.append((values["n"], values["elapsed_s"], source))
            return
        epoch = values.get("epoch")
        if values.get("epochs"):
            # Counted from 0, the last of four is "3/3".
            self._zero = self._zero or epoch == 0
            self.planned = (values["epochs"] + self._zero, source)
        key = _NAME.sub("#", name), values.get("total")
        bar = self._open.get(key)
        if bar is not None and (values["n"] < bar.n or epoch != bar.epoch):
            self._close(key, followed=True)
            bar = None
        if bar is None:
            if len(self._open) >= 64:
                self._close(next(iter(self._open)))
            bar = self._open[key] = Bar(source, epoch, values.get("total"))
        bar.add(values, source)

    def close(self) -> list[EpochTime]:
        """End all bars; the passes of the training in their order, from an outer bar over epochs where there is one."""
        for key in list(self._open):
            self._close(key)
        inner = self._training()
        if len(self._epochs) < 2 or any(one.epoch is not None for one in inner):
            return inner
        totals = {one.total for one in inner}
        steps = totals.pop() if len(totals) == 1 else None
        rows = []
        for (n, at, _), (next_n, next_at, source) in zip(self._epochs, self._epochs[1:], strict=False):
            if next_n == n + 1:
                rows.append(EpochTime(source, next_n, next_at - at, steps, steps, of="bar of epochs"))
        return rows or inner

    def _training(self) -> list[EpochTime]:
        """Of several kinds of bars those that number epochs, else those named for training, else the longest."""
        kinds = list(self._passes.items())
        numbered = [kind for kind in kinds if any(one.epoch is not None for one in kind[1])]
        named = [kind for kind in kinds if "train" in kind[0][0].lower()]
        chosen = numbered or named or sorted(kinds, key=lambda kind: sum(one.seconds or 0.0 for one in kind[1]))[-1:]
        found = [one for _, passes in chosen for one in passes]
        return sorted(found, key=lambda one: one.source.line) if len(chosen) > 1 else found

    def _close(self, key: tuple[str, float | None], followed: bool = False) -> None:
        bar = self._open.pop(key)
        if bar.n <= 0 or (bar.elapsed_s <= 0 and bar.n < 2):
            return
        # A bar that vanishes at its end never shows its last state.
        done = bar.total if followed and bar.total and bar.n >= 0.9 * bar.total else bar.n
        passes = self._passes.setdefault(key, [])
        seconds, blocks = bar.elapsed_s, bar.blocks()
        passes.append(
            EpochTime(bar.source, bar.epoch, seconds, done, bar.total, bar.its, blocks=blocks, of="progress bar")
        )
        if len(passes) > MOST_PASSES or len(self._passes) > MOST_KINDS:  # of a hostile file
            passes.pop()


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
        )

    def _take_time(self, step: float, time_s: float) -> None:
        """Time since the last line with one; a counter that goes back has started again."""
        if self.last_time is not None:
            steps, seconds = step - self.last_time[0], time_s - self.last_time[1]
            self.restarts += steps < 0
            if steps > 0 and seconds >= 0 and len(self.intervals) < 4096:
                self.intervals.append(seconds / steps)
        self.first_time = self.first_time or (step, time_s)
        self.last_time = (step, time_s)

    def _from_times(self) -> float | None:
        """Mean time of a step between the first and the last line, pauses included."""
        if self.first_time is None or self.last_time is None or self.restarts:
            return statistics.fmean(self.intervals) if self.intervals else None
        (first, begin), (last, end) = self.first_time, self.last_time
        return (end - begin) / (last - first) if last > first and end > begin else None

    def notes(self) -> list[str]:
        """Restarts, and pauses such as evaluations and checkpoints."""
        found = [f"its step counter goes back {self.restarts} times: the run was restarted"] if self.restarts else []
        if not self.count and len(self.intervals) >= 10:
            usual = statistics.median(self.intervals)
            pauses = [one for one in self.intervals if one > max(PAUSE * usual, usual + 1.0)]
            if pauses:
                found.append(
                    f"{len(pauses)} pauses of {min(pauses):.1f} to {max(pauses):.1f} s between steps of {usual:.3g} s"
                )
        return found
