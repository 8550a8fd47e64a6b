"""Watch a run until it ends: look now and then, show what is new, say warnings."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TextIO

from rich.live import Live
from rich.text import Text

from flatout.live.live_page import Viewer
from flatout.live.notifying import Notifier
from flatout.live.panel import one_line, panel_lines
from flatout.live.state import State
from flatout.live.watched import Watched
from flatout.report.layout import Glyphs, console
from flatout.terminal_text import progress_lines

LOOK_EVERY_S = 1.0
LINE_EVERY_S = 60.0  # where there is no terminal


class Terminal:
    """Shows states: one panel on a terminal; elsewhere a line a minute, and each new warning."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic, *, quiet: bool = False
    ) -> None:
        """Show on ``stream`` (None: standard error); ``quiet``: only warnings and what is said."""
        self._stream = stream or sys.stderr
        self._clock = clock
        self._quiet = quiet
        self._moving = self._stream.isatty() and not quiet
        self._glyphs = Glyphs((getattr(self._stream, "encoding", None) or "ascii").lower().startswith("utf"))
        self._live: Live | None = None
        self._said: set[str] = set()
        self._next_s = clock()

    def show(self, state: State) -> None:
        """Show a state."""
        if self._moving:
            self._move(state)
            return
        for warning in state.warnings:
            if warning.id not in self._said:
                self._said.add(warning.id)
                self.say(f"warning: {warning.text}")
        # The last state is shown whenever it comes: a training that failed is not to end without a word.
        if not self._quiet and (self._clock() >= self._next_s or state.stop is not None):
            self._next_s = self._clock() + LINE_EVERY_S
            self.say(one_line(state))

    def say(self, text: str) -> None:
        """A line that stays."""
        lines = "\n".join(progress_lines(text))
        if self._live is not None:
            self._live.console.print(lines, highlight=False, markup=False, soft_wrap=True)
        else:
            print(lines, file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the last panel on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _move(self, state: State) -> None:
        if self._live is None:
            self._live = Live(console=console(self._stream), auto_refresh=False)
            self._live.start()
        lines = panel_lines(state, self._glyphs, self._live.console.width)
        self._live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)


class JsonLines:
    """Prints states to standard output, a line of JSON each; sentences go to standard error."""

    def show(self, state: State) -> None:
        """Print a state."""
        print(json.dumps(state.to_dict(), separators=(",", ":"), allow_nan=False), flush=True)

    def say(self, text: str) -> None:
        """A line beside the states."""
        print("\n".join(progress_lines(text)), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is open."""


def watch_run(watched: Watched, viewer: Viewer, notifier: Notifier | None = None) -> State:
    """Follow a run to its end.

    Args:
        watched: the run.
        viewer: shows each state.
        notifier: is told of warnings and of the end.

    Returns:
        Its last state.
    """
    try:
        while True:
            state = watched.look()
            viewer.show(state)
            if notifier is not None and (failed := notifier.tell(state)):
                viewer.say(failed)
            if watched.over:
                break
            time.sleep(LOOK_EVERY_S)
    finally:
        viewer.close()
    if notifier is not None and (failed := notifier.end(state)):
        viewer.say(failed)
    return state
