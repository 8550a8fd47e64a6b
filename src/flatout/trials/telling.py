"""Progress of a fix on standard error: one line a run, and one a trial."""

from __future__ import annotations

import sys

from flatout.report.quantities import duration, factor
from flatout.trials.result import KEPT, Tried


class Telling:
    """Writes lines, or nothing."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def say(self, text: str) -> None:
        """One line."""
        if not self._quiet:
            print(f"flatout: {text}", file=sys.stderr, flush=True)

    def trial(self, tried: Tried) -> None:
        """What came of a trial."""
        measured = f" {factor(tried.ratio.factor)}" if tried.ratio else ""
        word = "kept" if tried.outcome == KEPT else tried.outcome
        self.say(f"{word}:{measured} {tried.title} ({duration(tried.wall_s)})")
