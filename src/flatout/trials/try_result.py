"""Results of ``flatout try``: plain objects for the terminal and JSON."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.compare.comparison import Comparison
from flatout.compare.ratio import Ratio
from flatout.errors import Interrupted
from flatout.trials.losses import LossCheck

PROVED = "proved"  # faster, and it trains the same
DIFFERS = "differs"  # faster, but it trains something else
UNCONFIRMED = "unconfirmed"  # one pair only: a faster candidate, or the budget, left no time for another
NO_GAIN = "no_gain"
SLOWER = "slower"
DIVERGED = "diverged"  # the loss is NaN or infinite
UNMEASURED = "unmeasured"  # no time, or the run without it failed
# Best first; outcomes of runs that do not count (oom, guarded, failed, refused, too_short) come last.
ORDER = (PROVED, UNCONFIRMED, NO_GAIN, SLOWER, DIFFERS, DIVERGED, UNMEASURED)


@dataclass(frozen=True)
class Memory:
    """The most memory in use at a time, of all processes of a run, in bytes. None: not measured."""

    host_bytes: int | None = None
    device_bytes: int | None = None


@dataclass(frozen=True)
class Judged:
    """One candidate with its verdict.

    Attributes:
        title: as the user gave it.
        outcome: one of ORDER, or why its run does not count (oom, guarded, failed, refused, too_short).
        why: one sentence.
        files: that it changes.
        ratio: with it over without it; None: no complete pair.
        losses: the check of the losses; None: not reached.
        same_training: it trains the same; None: not known.
        comparison: of its runs; None: no complete pair.
        memory: without it, and with it.
        printed: the last lines of a run that failed.
        stopped: why it got no further pair; empty if it was decided.
    """

    title: str
    outcome: str
    why: str
    files: tuple[str, ...] = ()
    ratio: Ratio | None = None
    losses: LossCheck | None = None
    same_training: bool | None = None
    comparison: Comparison | None = None
    memory: tuple[Memory, Memory] = (Memory(), Memory())
    printed: tuple[str, ...] = ()
    stopped: str = ""

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts the best candidate first."""
        place = ORDER.index(self.outcome) if self.outcome in ORDER else len(ORDER)
        return place, -(self.ratio.factor if self.ratio else 0.0)


@dataclass(frozen=True)
class TryResult:
    """The outcome of ``flatout try``.

    Attributes:
        command: the unchanged one.
        candidates: best first.
        before: rate of the unchanged training, of all its runs; None: no run of it counts.
        unit: of the rates.
        ended: why it ended early; empty: it did not.
        isolation: of the runs' writes, one sentence.
        seconds: duration.
        log: file with the output of the commands; empty: it is removed.
        taken_out: the files have the change already, and the runs without it had it taken out.
        interrupted: by this; None: it was not.
        crowded: that other processes used the cores, one sentence; empty: none did.
    """

    command: tuple[str, ...]
    candidates: tuple[Judged, ...]
    before: float | None
    unit: str
    ended: str
    isolation: str
    seconds: float
    log: str = ""
    taken_out: bool = False
    interrupted: Interrupted | None = None
    crowded: str = ""

    @property
    def best(self) -> Judged:
        """The candidate in front."""
        return self.candidates[0]

    @property
    def proved(self) -> bool:
        """True if the best candidate is faster beyond noise and trains the same."""
        return self.best.outcome == PROVED
