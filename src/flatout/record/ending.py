"""How a recorded command ended, as run.json tells it: the one place that reports, lists and watchers ask."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SIGNAL_CODE = 128  # a shell's exit code of a command that signal n ended is this plus n
_WORDS = {
    "steps": "step bound",
    "seconds": "time bound",
    "blocks": "end of a live trial",
    "no_steps": "no steps",
    None: "not closed",
}


@dataclass(frozen=True)
class Ending:
    """The end of a recording.

    Attributes:
        stop: why it ended, as in run.json; None: it was not closed.
        exit_code: of the command, if it ended by itself; 128 + n for signal n.
    """

    stop: str | None
    exit_code: int | None

    @property
    def failed(self) -> bool:
        """True if the command ended by itself and not well: flatout's own bounds and Ctrl-C are no failure."""
        return self.stop == "failed"

    @property
    def words(self) -> str:
        """A few words for a table: "finished", "failed (137)"."""
        if self.failed and self.exit_code is not None:
            return f"failed ({self.exit_code})"
        return _WORDS.get(self.stop, str(self.stop))

    @property
    def failure(self) -> str | None:
        """What happened to a command that failed, as a clause without full stop; None: it did not."""
        if not self.failed:
            return None
        if self.exit_code is None:
            return "the command failed"
        try:
            killer = signal.Signals(self.exit_code - _SIGNAL_CODE).name
        except ValueError:
            return f"the command failed (exit code {self.exit_code})"
        return f"the command was ended by {killer} (exit code {self.exit_code})"


def ending_of(info: Mapping[str, Any]) -> Ending:
    """The ending that a run.json tells of."""
    return Ending(info.get("stop"), info.get("exit_code"))
