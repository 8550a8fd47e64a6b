"""What every reader yields: one observation, with its time where the log gives one, and its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from flatout.logs.redaction import redacted

QUOTED = 300  # characters


class Kind(StrEnum):
    """What an observation is about; the names of its values are listed beside it."""

    PROGRESS = "progress"  # n, total, elapsed_s, its (iterations/s); label bar
    STEP = "step"  # step, total, epoch, step_s, data_s, samples_s
    EPOCH = "epoch"  # epoch, seconds, its, steps, samples_s; label phase
    METRICS = "metrics"  # any; epoch and step say when
    TOTALS = "totals"  # runtime_s, samples_s, its, epochs: what a trainer says at its end
    SETTING = "setting"  # any; label phase
    DEVICE = "device"  # index, utilisation (0-1), used_bytes, total_bytes, watts, clock_hz, celsius; label name
    HOST = "host"  # cpu (0-1), rss_bytes
    JOB = "job"  # elapsed_s, cpu_s, cores, rss_bytes; labels state, id
    TROUBLE = "trouble"  # label what: oom, killed, nan, shm, timeout
    STATEMENT = "statement"  # a line of prose with quantities
    NOTE = "note"  # label note: what the reader left out


@dataclass(slots=True)
class Observation:
    """One thing that a log says.

    Attributes:
        kind: What it is about.
        values: Numbers by name, in SI units; see ``Kind``.
        labels: Texts by name.
        time_s: Seconds since 1970 as the log wrote them; None: it wrote no time.
        zoned: The time is exact; False: a wall clock without its time zone.
        line: Line or record number in its file, from 1; 0: the file has none.
        text: The line, for quoting; redact it first.
    """

    kind: Kind
    values: dict[str, float] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    time_s: float | None = None
    zoned: bool = False
    line: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Where something was read: file, line, and the line itself, which may hold secrets: quote ``text``."""

    file: str
    line: int
    raw: str = ""

    @property
    def text(self) -> str:
        """The line without secrets, shortened."""
        text = redacted(self.raw)
        return text if len(text) <= QUOTED else f"{text[:QUOTED]}…"

    @property
    def place(self) -> str:
        """As compilers write it: "train.log:12"."""
        return f"{self.file}:{self.line}" if self.line else self.file
