"""Lines about a recording in progress, on standard error, between the script's own output."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TextIO

from flatout.runner.bounds import DEFAULT_SECONDS, Bounds
from flatout.runner.live import NO_PROBE, Live, named
from flatout.terminal_text import progress_lines
from flatout.units import counted, duration, percent

# The script's output goes to the same terminal: print a few whole lines, at increasing intervals.
FIRST_LINE_S = 5.0
LONGEST_PAUSE_S = 60.0


class Progress:
    """Prints a line now and then. Silent when ``quiet``.

    Args:
        bounds: Shown in the lines, so that the end can be foreseen.
        quiet: Print nothing.
        stream: Where to; standard error by default.
    """

    def __init__(self, bounds: Bounds, quiet: bool, stream: TextIO | None = None) -> None:
        self._bounds = bounds
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._started_s = time.monotonic()
        self._pause_s = FIRST_LINE_S
        self._next_s = self._started_s + self._pause_s
        self._stepping = False
        self._failed: tuple[int, ...] = ()

    def say(self, text: str) -> None:
        """Print a sentence immediately."""
        if not self._quiet:
            # The reader of the lines may be gone: that is no reason to lose the recording.
            with contextlib.suppress(OSError, ValueError):
                print("\n".join(progress_lines(text)), file=self._stream, flush=True)

    def look(self, live: Live) -> None:
        """Print a line when it is time for one."""
        now_s = time.monotonic()
        if live.failed != self._failed:
            self._failed = live.failed
            self.say(f"the probe failed in {named(live.failed)}: nothing more is recorded there")
        if live.first_step_ns and not self._stepping:
            self._stepping = True
            self._pause_s = FIRST_LINE_S
            self._next_s = now_s + self._pause_s
            self.say(f"first training step after {duration(now_s - self._started_s)}")
            self.say(self._until())
        if now_s < self._next_s:
            return
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        self._next_s = now_s + self._pause_s
        self.say(self._line(live, now_s))

    def _until(self) -> str:
        bounds = self._bounds
        if bounds.full:
            return "recording to the end of the command; Ctrl-C ends it earlier, with a report"
        wanted = [f"{bounds.steps} steps"] if bounds.steps else []
        if bounds.seconds:
            wanted.append(duration(bounds.seconds))
        text = " or ".join(wanted) or duration(DEFAULT_SECONDS)
        return f"recording {text}; Ctrl-C ends it earlier, with a report"

    def _line(self, live: Live, now_s: float) -> str:
        if not live.first_step_ns:
            waited = f"{duration(now_s - self._started_s)}, no training step yet"
            if not live.processes:
                return f"{waited}: {NO_PROBE}"
            return f"{waited} ({live.with_torch} of {live.processes} Python processes with torch)"
        elapsed_s = max((live.last_step_ns - live.first_step_ns) / 1e9, 1e-9)
        rate = (live.steps - 1) / elapsed_s
        line = counted(live.steps, "step") + (f", {rate:.2f} steps/s" if live.steps > 1 else "")
        if live.batches and live.window_s > 0:
            line += f", waiting for batches {percent(live.wait_s / live.window_s)} of the time so far"
        return line
