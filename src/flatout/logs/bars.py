"""Progress bars, folded into passes over the data while they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from flatout.logs.facts import EpochTime
from flatout.logs.observations import Observation, Source
from flatout.units import counted

MOST_POINTS = 64
SHORT_S = 20.0  # a clock of whole seconds is off by more than 5% below
MOST_PASSES, MOST_KINDS = 20_000, 256
# Bars that are not the training.
OTHER = re.compile(
    r"(?i)\b(?:val|valid|validat\w*|eval\w*|test\w*|sanity|predict\w*|infer\w*|download\w*|load\w*|map|filter|token\w*"
    r"|generating|generation|cop(?:y|ying)|extract\w*|shards?|fetch\w*|saving|save|writ\w*|read\w*"
    r"|scan\w*|caching|cache|prepar\w*|mean|cali\w*)"
)
# Ultralytics' has the heads of its table in front.
VALIDATION = re.compile(r"(?i)^(?!.*sanity).*\b(?:val|valid|validat\w*|eval\w*|test\w*)\b|^\s*Class\s+Images\b")
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

    @property
    def seconds(self) -> float | None:
        """Its time; below ``SHORT_S`` by the count and the printed rate. None: those do not fit its clock.

        The clock shows whole seconds, cut off: 1 s is 1.0 to 2.0 s.
        """
        if self.elapsed_s >= SHORT_S:
            return self.elapsed_s
        by_rate = self.n / self.its if self.its else 0.0
        # A rate of two digits is rounded by up to 5%.
        fits = 0.95 * self.elapsed_s <= by_rate <= 1.05 * (self.elapsed_s + 1)
        return by_rate if fits and by_rate > 0 else None

    def blocks(self, most: int = 12) -> tuple[float, ...]:
        """Seconds a step of up to ``most`` consecutive parts; clocks of whole seconds need some seconds each."""
        least_s = max(self.elapsed_s / most, 4.0)
        found, (n, at) = [], (0.0, 0.0)
        for next_n, next_at in (*self.points, (self.n, self.elapsed_s)):
            if next_n > n and next_at - at >= least_s:
                found.append((next_at - at) / (next_n - n))
                n, at = next_n, next_at
        return tuple(found)


class Validation:
    """Bars of the validation; those that a training's bar spans are in its time already."""

    def __init__(self) -> None:
        self.between_s: list[float] = []
        self._ended_s = 0.0
        self._last: tuple[float, float] | None = None

    @property
    def seconds(self) -> float:
        """How long they took since the training's bar moved last."""
        return self._ended_s + (self._last[1] if self._last else 0.0)

    def add(self, n: float, elapsed_s: float) -> None:
        """Take a state of a bar."""
        if self._last is not None and n < self._last[0]:
            self._ended_s += self._last[1]
        self._last = (n, elapsed_s)

    def end(self, within: bool) -> None:
        """The training goes on, within the same pass or with the next."""
        if self._last is not None and not within and len(self.between_s) < MOST_PASSES:
            self.between_s.append(self.seconds)
        self._ended_s, self._last = 0.0, None


class Bars:
    """All bars of a file."""

    def __init__(self) -> None:
        self._passes: dict[tuple[str, float | None], list[EpochTime]] = {}
        self.planned: tuple[float, Source] | None = None
        self._open: dict[tuple[str, float | None], Bar] = {}
        self._zero = False
        self._epochs: list[tuple[float, float, Source]] = []
        self._validation = Validation()
        self._by_rate = self._by_clock = 0

    def notes(self) -> list[str]:
        """How the times of short bars are known."""
        found = []
        if self._by_rate:
            found.append(f"clocks of bars show whole seconds: below {SHORT_S:.0f} s, times are count over printed rate")
        if self._by_clock:
            bars = counted(self._by_clock, "bar")
            found.append(f"clocks show whole seconds: {bars} below {SHORT_S:.0f} s may have taken up to 1 s longer")
        return found

    @property
    def validation_s(self) -> tuple[float, ...]:
        """Durations of the validations between two passes of the training."""
        return tuple(self._validation.between_s)

    def add(self, one: Observation, source: Source) -> None:
        """Take a state of a bar."""
        values, name = one.values, one.labels["bar"]
        if VALIDATION.search(name) and not one.labels["unit"].endswith("B"):
            self._validation.add(values["n"], values["elapsed_s"])
            return
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
        if bar is not None and (values["n"] < bar.n or epoch != bar.epoch or self._again(bar, values)):
            self._close(key, followed=True)
            bar = None
        self._validation.end(within=bar is not None)
        if bar is None:
            if len(self._open) >= 64:
                self._close(next(iter(self._open)))
            bar = self._open[key] = Bar(source, epoch, values.get("total"))
        bar.add(values, source)

    def close(self) -> list[EpochTime]:
        """End all bars; the passes of the training in their order, from an outer bar over epochs where there is one."""
        for key in list(self._open):
            self._close(key)
        self._validation.end(within=False)
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

    def _again(self, bar: Bar, values: dict[str, float]) -> bool:
        """The next pass was logged by its last state alone: a validation lies between the two.

        Lightning draws the finished bar once more after it: those have numbers, and clocks that went on.
        """
        ended = values["n"] == bar.n == bar.total and values["elapsed_s"] <= bar.elapsed_s
        return ended and bar.epoch is None and self._validation.seconds >= 2.0  # clocks show whole seconds

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
        seconds, blocks = bar.seconds, bar.blocks()
        if bar.elapsed_s < SHORT_S:
            self._by_rate += seconds is not None
            self._by_clock += seconds is None
        seconds = bar.elapsed_s if seconds is None else seconds
        passes.append(
            EpochTime(bar.source, bar.epoch, seconds, done, bar.total, bar.its, blocks=blocks, of="progress bar")
        )
        if len(passes) > MOST_PASSES or len(self._passes) > MOST_KINDS:  # of a hostile file
            passes.pop()
