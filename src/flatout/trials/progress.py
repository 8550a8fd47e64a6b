"""Progress of a fix on standard error: one line a run, and one a trial."""

from __future__ import annotations

import contextlib
import sys

from flatout.terminal_text import progress_lines
from flatout.trials.result import KEPT, UNCONFIRMED, UNMEASURED, Trial
from flatout.units import duration, factor


class ProgressLog:
    """Prints progress lines; none if quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def say(self, text: str) -> None:
        """Print one sentence, folded."""
        if not self._quiet:
            # The pipe's reader may be gone, which must not lose the trials.
            with contextlib.suppress(OSError, ValueError):
                print("\n".join(progress_lines(text)), file=sys.stderr, flush=True)

    def trial(self, tried: Trial) -> None:
        """Print the outcome of a trial."""
        measured = f" {factor(tried.ratio.factor)}" if tried.ratio else ""
        word = {KEPT: "kept", UNCONFIRMED: "not confirmed", UNMEASURED: "not measured"}.get(
            tried.outcome, tried.outcome
        )
        self.say(f"{word}:{measured} {tried.title} ({duration(tried.wall_s)})")
