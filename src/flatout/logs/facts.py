"""What one file said, in bounded space: the plain result of reading it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from flatout.logs.observations import Source
from flatout.logs.quantities import Quantity, quantities

_NOT_SPEED = re.compile(
    r"(?i)\W{0,3}(?:larger|bigger|smaller|wider|deeper|(?:more|less|lower) \w*\s?(?:memory|params|data)|memory"
    r"|the (?:memory|batch|size|number)|(?:performance )?regression|slower|slow-?down|better|gpus?\b)"
)
_OF_RATE = re.compile(r"(?i)\b(?:lr|learning rate|memory|vram)\b[^.;,]*$")


@dataclass(frozen=True, slots=True)
class Said:
    """A setting's value, where it stands, and whether the text puts it "before" or "after" a change, or saw it."""

    value: float
    source: Source
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """The name of a GPU, where it stands, and its phase ("seen": the run itself reported it)."""

    name: str
    source: Source
    phase: str = ""


@dataclass(frozen=True)
class Statement:
    """A line of prose; ``said`` is the part that counts, such as one cell of a table."""

    said: str
    source: Source
    phase: str = ""

    @cached_property
    def quantities(self) -> list[Quantity]:
        """The numbers with units in it."""
        return quantities(self.said)

    @cached_property
    def speedups(self) -> list[Quantity]:
        """Factors that may be of speed: not "4x larger", "2x the memory", nor of a learning rate."""
        return [
            one
            for one in self.all("factor")
            if not _NOT_SPEED.match(self.said, one.end) and not _OF_RATE.search(self.said, 0, one.start)
        ]

    def all(self, what: str) -> list[Quantity]:
        """Those of one unit."""
        return [one for one in self.quantities if one.what == what]


@dataclass(frozen=True, slots=True)
class EpochTime:
    """One pass over the training data. None: not said.

    Attributes:
        epoch: Its number as the log counts.
        seconds: Its duration.
        steps: Steps that its time is of.
        total: Steps that it was to have.
        its: Steps/s as printed at its end, which a bar may have smoothed.
        samples_s: Samples/s as printed.
        waiting: Share of the time that the script itself counted as waiting for data.
        blocks: Mean step times of consecutive parts, seconds.
        phase: "before" or "after" a change, by the head of a table.
        of: Which format told it.
        begin: Steps done before the first that has a time.
    """

    source: Source
    epoch: float | None = None
    seconds: float | None = None
    steps: float | None = None
    total: float | None = None
    its: float | None = None
    samples_s: float | None = None
    waiting: float | None = None
    blocks: tuple[float, ...] = ()
    phase: str = ""
    of: str = ""
    begin: float = 0.0

    @property
    def done(self) -> float:
        """Steps done, with those before the first that has a time."""
        return self.begin + (self.steps or 0.0)

    @property
    def whole_s(self) -> float:
        """Predicted duration of all steps done: those without a time took as long as the others."""
        seconds = self.seconds or 0.0
        return seconds * self.done / self.steps if self.begin and self.steps else seconds

    @property
    def complete(self) -> bool:
        """It ran to its end, as far as the log tells."""
        return self.total is None or (self.steps is not None and self.done >= self.total)


@dataclass(slots=True)
class Series:
    """A metric over time: its extremes, and at most ``MOST_POINTS`` points."""

    first: float
    last: float
    least: float
    most: float
    count: int
    source: Source
    points: list[tuple[float, float]] = field(default_factory=list)  # (epoch, step or place; value)
    by_epoch: bool = False


@dataclass(slots=True)
class Usage:
    """Samples of one quantity: their number, mean, extremes, and how many lay below a twentieth."""

    count: int = 0
    total: float = 0.0
    least: float = float("inf")
    most: float = float("-inf")
    idle: int = 0

    def add(self, value: float) -> None:
        """Count one sample."""
        self.count += 1
        self.total += value
        self.least, self.most = min(self.least, value), max(self.most, value)
        self.idle += value < 0.05

    @property
    def mean(self) -> float:
        """Mean of the samples."""
        return self.total / self.count


@dataclass(frozen=True, slots=True)
class Trouble:
    """A line that tells of a fault."""

    what: str
    source: Source


@dataclass(frozen=True, slots=True)
class Totals:
    """What a trainer or a scheduler said of the whole run."""

    values: dict[str, float]
    labels: dict[str, str]
    source: Source


@dataclass
class FileFacts:
    """All that one file said."""

    file: str
    format: str
    bytes: int = 0
    observations: int = 0
    settings: dict[str, list[Said]] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    epochs: list[EpochTime] = field(default_factory=list)
    validation_s: tuple[float, ...] = ()  # durations of validations that no epoch's time contains
    metrics: dict[str, Series] = field(default_factory=dict)
    totals: list[Totals] = field(default_factory=list)
    jobs: list[Totals] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)  # "gpu0 utilisation", "cpu", ...
    timed: list[tuple[float, str, float]] = field(default_factory=list)  # thinned samples: time, name, value
    rows: list[tuple[Statement, Statement, Statement]] = field(default_factory=list)  # of tables: before, after, rest
    statements: list[Statement] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    from_s: float | None = None
    to_s: float | None = None
    zoned: bool = False

    def setting(self, name: str, *, phase: str | None = None) -> Said | None:
        """The first value of a setting, of a phase if one is given."""
        found = self.settings.get(name, ())
        return next((one for one in found if phase is None or one.phase == phase), None)

    def nearest(self, name: str, line: int) -> Said | None:
        """The value that stands last before a line, else the first."""
        found = self.settings.get(name, ())
        before = [one for one in found if one.source.line <= line]
        return before[-1] if before else next(iter(found), None)
