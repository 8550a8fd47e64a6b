"""Watch a run until it ends: look now and then, show what is new, say warnings."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flatout.live.follower import Follower
from flatout.live.history import History
from flatout.live.notifying import Notifier
from flatout.live.panel import one_line, panel_lines
from flatout.live.projection import Plan
from flatout.live.state import State, state_of
from flatout.report.layout import Glyphs
from flatout.terminal_text import progress_lines

LOOK_EVERY_S = 1.0
LINE_EVERY_S = 60.0  # where there is no terminal
# The machine is sampled twice a second as long as a recording goes on, even if the training hangs.
SILENT_S = 60.0


class Watched:
    """A run that is followed; ``look`` reads what is new."""

    def __init__(self, run: Path, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self.run, self.plan = run, plan
        self.history = History()
        self._follower = Follower(run)
        self._clock = clock
        self._heard_s = clock()
        self._known_ns = -1

    def look(self) -> State:
        """Read what is new; the state of the run."""
        self.history.take(self._follower.look())
        if self.history.now_ns != self._known_ns:
            self._known_ns, self._heard_s = self.history.now_ns, self._clock()
        return state_of(self.history, self.plan)

    @property
    def silent_s(self) -> float:
        """Time since anything new was seen."""
        return self._clock() - self._heard_s

    @property
    def over(self) -> str | None:
        """Why there is nothing more to come; None: the recording goes on."""
        if self.history.ended:
            return "ended"
        return "broken off" if self.silent_s > SILENT_S else None


class Terminal:
    """Shows states: one panel on a terminal; elsewhere a line a minute, and each new warning."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._moving = self._stream.isatty()
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
        if self._clock() >= self._next_s:
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
            self._live = Live(console=Console(file=self._stream, highlight=False), auto_refresh=False)
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


def watch_run(watched: Watched, viewer: Terminal | JsonLines, notifier: Notifier | None = None) -> State:
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
            if watched.over is not None:
                break
            time.sleep(LOOK_EVERY_S)
    finally:
        viewer.close()
    if notifier is not None and (failed := notifier.end(state, watched.over)):
        viewer.say(failed)
    return state
