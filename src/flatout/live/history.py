"""What is known of a run so far, in bounded memory: its steps, its machine, its metrics and its checkpoints."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flatout.export.machine_counters import machine_counters, process_counters
from flatout.live.columns import JoinedSeries, JoinedSteps
from flatout.live.follower import News
from flatout.live.step_rows import StepRows
from flatout.measure.ranks import Ranks
from flatout.measure.step_phases import PHASES
from flatout.probe import events as kinds
from flatout.probe.contract import METRIC_PREFIX
from flatout.record import Events, Names, ending_of, of_kinds

BROKEN_OFF = "broken off"  # of a record that nobody writes any more, and nobody closed
RECENT_S = 30.0  # rates and shares on screen are of this long
RECENT_STEPS = 20  # or of this many steps, if that is longer
# The machine is sampled twice a second as long as a recording goes on, even if the training hangs: a record that is
# silent for longer tells nothing of the present, and after a minute it was broken off.
PRESENT_S, SILENT_S = 5.0, 60.0
MOST_RECENT = 20_000
SAMPLES_KEPT_S = 600.0  # of the machine, for trends
MOST_CHECKPOINTS = 1_000
MOST_METRICS = 200


@dataclass(frozen=True)
class Step:
    """One step."""

    start_ns: int
    duration_s: float
    wait_s: float
    samples: int
    epoch: int

    @property
    def end_ns(self) -> int:
        """When the next step began."""
        return self.start_ns + round(self.duration_s * 1e9)


@dataclass(frozen=True)
class Checkpoint:
    """A file that the training saved."""

    time_ns: int
    path: str
    bytes: int


@dataclass
class History:
    """A run so far; ``take`` is its only change."""

    info: dict[str, Any] = field(default_factory=dict)
    silent_s: float = 0.0  # since the record last told of anything new, by the watcher's clock
    pid: int | None = None  # of the process that trains
    loader: dict[str, Any] = field(default_factory=dict)  # settings of the one that feeds the training
    world_size: int | None = None
    ranks: Ranks | None = None  # over their latest steps
    steps: int = 0  # complete ones
    first_step_ns: int | None = None  # end of the first step
    wait_s: float = 0.0  # of the steps after the first one, as are:
    stepping_s: float = 0.0
    recent: deque[Step] = field(default_factory=lambda: deque(maxlen=MOST_RECENT))
    epochs: list[tuple[int, int, int]] = field(default_factory=list)  # begin (ns), end of its last step (ns), steps
    rows: JoinedSteps = field(default_factory=lambda: JoinedSteps(PHASES))
    series: dict[str, JoinedSeries] = field(default_factory=dict)
    samples: deque[dict[str, Any]] = field(default_factory=deque)  # of the machine, recent ones
    metrics: dict[str, tuple[int, float]] = field(default_factory=dict)  # name -> steps by then, latest value
    not_finite: tuple[str, float, int] | None = None  # the first metric that was not: name, value, steps by then
    checkpoints: deque[Checkpoint] = field(default_factory=lambda: deque(maxlen=MOST_CHECKPOINTS))

    def take(self, news: News) -> None:
        """Take in what a look found."""
        self.info = news.info
        if news.process is not None:
            self.pid, self.world_size = news.process.pid, news.process.info.get("world_size")
        self.ranks = news.ranks
        if news.steps is not None:
            self._take_steps(news.steps)
        if news.loader is not None:
            self.loader = news.names.get(news.loader, "loader")
        self._take_metrics(of_kinds(news.events, kinds.METRIC), news.names)
        for event in of_kinds(news.events, kinds.CHECKPOINT):
            path = news.names.text(int(event["arg"]))
            self.checkpoints.append(Checkpoint(int(event["start"] + event["duration"]), path, int(event["a"])))
        self._take_samples(news.samples)

    @property
    def now_ns(self) -> int:
        """The present, on the clock of the record: its latest moment, and the silence since."""
        return self.told_ns + (0 if self.ended else round(self.silent_s * 1e9))

    @property
    def told_ns(self) -> int:
        """The latest moment that the record tells of."""
        seen = [self.info.get("end_ns") or self.info.get("start_ns") or 0]
        seen += [self.samples[-1]["t"]] if self.samples else []
        seen += [self.recent[-1].end_ns] if self.recent else []
        return max(seen)

    @property
    def ended(self) -> bool:
        """True once the record is closed."""
        return self.info.get("end_ns") is not None

    @property
    def silent(self) -> bool:
        """True if the recording goes on as far as is known, but its record tells nothing of the present."""
        return not self.ended and self.silent_s > PRESENT_S

    @property
    def stop(self) -> str | None:
        """Why nothing more comes: as in run.json, or "broken off"; None: the recording goes on."""
        if self.ended:
            return ending_of(self.info).stop or "ended"
        return BROKEN_OFF if self.silent_s > SILENT_S else None

    def latest(self) -> list[Step]:
        """The steps of the last ``RECENT_S``, at least ``RECENT_STEPS``, without the first of all."""
        if not self.recent:
            return []
        since_ns = self.recent[-1].end_ns - RECENT_S * 1e9
        chosen: list[Step] = []
        for step in reversed(self.recent):
            if step.start_ns < since_ns and len(chosen) >= RECENT_STEPS:
                break
            chosen.append(step)
        chosen.reverse()
        return chosen[1:] if len(chosen) == self.steps else chosen

    def _take_steps(self, rows: StepRows) -> None:
        columns = (rows.start_ns, rows.duration_s, rows.samples, rows.epoch, *(rows.parts[name] for name in PHASES))
        for start_ns, duration_s, samples, epoch, *parts in zip(*(each.tolist() for each in columns), strict=True):
            step = Step(start_ns, duration_s, parts[0], samples, epoch)
            if self.first_step_ns is None:
                self.first_step_ns = step.end_ns
            else:
                self.wait_s += step.wait_s
                self.stepping_s += duration_s
            self.recent.append(step)
            self.rows.add(self.steps, start_ns, duration_s, dict(zip(PHASES, parts, strict=True)))
            self.steps += 1
            if epoch >= len(self.epochs):
                self.epochs.append((start_ns, step.end_ns, 1))
            else:
                begin_ns, _, count = self.epochs[-1]
                self.epochs[-1] = (begin_ns, step.end_ns, count + 1)

    def _take_metrics(self, events: Events, names: Names) -> None:
        values = np.ascontiguousarray(events["a"].astype("<i8")).view("<f8").tolist()
        for id, value in zip(events["arg"].tolist(), values, strict=True):
            name = names.text(id).removeprefix(METRIC_PREFIX)
            if not name or (name not in self.metrics and len(self.metrics) >= MOST_METRICS):
                continue
            self.metrics[name] = (self.steps, value)
            if not math.isfinite(value) and self.not_finite is None:
                self.not_finite = (name, value, self.steps)

    def _take_samples(self, samples: tuple[dict[str, Any], ...]) -> None:
        if not samples:
            return
        # What grows is told from pairs: the last one known goes before the new ones.
        joined = [*([self.samples[-1]] if self.samples else []), *samples]
        known_ns = self.samples[-1]["t"] if self.samples else -1
        counters = [*machine_counters(joined)]
        if self.pid is not None:
            counters += process_counters(joined, self.pid)
        for counter in counters:
            series = self.series.get(counter.name)
            if series is None:
                series = self.series[counter.name] = JoinedSeries(counter.unit, peak=counter.unit == "GiB")
            for time_ns, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
                if time_ns > known_ns:
                    series.add(time_ns, value)
        self.samples.extend(samples)
        while self.samples[-1]["t"] - self.samples[0]["t"] > SAMPLES_KEPT_S * 1e9:
            self.samples.popleft()
