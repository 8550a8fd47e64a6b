"""What the user allows a fix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flatout.remedies.proposal import IDENTICAL


@dataclass(frozen=True)
class Options:
    """Limits that the user sets for a fix.

    Attributes:
        allowed: semantic classes of remedies that may be kept.
        budget_s: for the whole fix.
        seconds: of each run of a trial; None: as long as 80 steps take, within bounds.
        staged: "REAL=COPY": location of an existing copy of the data; None: no copy.
        stage_to: folder for a copy that a trial makes; None: the fix's folder, if it is on a local disk.
        live: compare in one running training what can be switched there, before the proof; None: where a start takes
            LONG_START_S or more.
        first_step_within_s: a run without a training step by then is ended; None: a third of the budget, at
            least 30 s, at most all of it.
    """

    allowed: frozenset[str] = frozenset({IDENTICAL})
    budget_s: float = 600.0
    seconds: float | None = None
    staged: str | None = None
    stage_to: Path | None = None
    first_step_within_s: float | None = None
    live: bool | None = None
