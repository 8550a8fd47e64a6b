"""Progress of a staging on standard error: one live line on a terminal, a line every 10 s elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from rich.live import Live
from rich.text import Text

from flatout.report.layout import console
from flatout.stage.pace import Pace
from flatout.stage.progress import Progress
from flatout.terminal_text import one_line
from flatout.units import duration, size

LINE_EVERY_S = 10.0
LEAST_SHARE = 0.01  # of the bytes to copy, before the time left is estimated


class Show:
    """Displays the progress of a staging.

    Attributes:
        pace: of the staging; None: it has not begun.
    """

    def __init__(self, quiet: bool, stream: TextIO | None = None) -> None:
        """Display nothing yet; with ``quiet`` never anything."""
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self.pace: Pace | None = None
        self._moving = not quiet and self._stream.isatty()
        self._live: Live | None = None
        self._shown = time.monotonic()

    def __enter__(self) -> Show:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the live line; after Ctrl-C print what was kept."""
        self.close()
        if kind is KeyboardInterrupt:
            print("stopped: what is complete is kept; the same command goes on", file=self._stream)

    def line(self, text: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            print(one_line(text), file=self._stream)

    def progress(self, progress: Progress) -> None:
        """Show the state of a copy."""
        self.pace = progress.pace
        self.state(lambda: state_line(progress))

    def state(self, text: Callable[[], str]) -> None:
        """Update the live line, or print one every ``LINE_EVERY_S``."""
        if self._quiet:
            return
        if self._moving:
            if self._live is None:
                self._live = Live(console=console(self._stream), refresh_per_second=4, transient=True)
                self._live.start()
            self._live.update(Text(text(), no_wrap=True, overflow="ellipsis"))
        elif time.monotonic() - self._shown >= LINE_EVERY_S:
            self._shown = time.monotonic()
            self.line(text())

    def close(self) -> None:
        """End the live line."""
        if self._live is not None:
            self._live.stop()


def state_line(progress: Progress) -> str:
    """One line of at most 80 columns: done of listed, rates, time left once the listing is complete."""
    done = progress.copied + progress.kept
    seconds = max(progress.duration_s, 1e-9)
    more = "" if progress.listing_done else "+"
    text = (
        f"{done:,} of {progress.listed:,}{more} files  {progress.copied / seconds:,.0f} files/s  "
        f"{size(progress.copied_bytes / seconds)}/s  {progress.concurrency} at once"
    )
    if progress.n_failed:
        text += f"  {progress.n_failed:,} failed"
    left = progress.listed_bytes - progress.copied_bytes - progress.kept_bytes
    if progress.listing_done and progress.copied_bytes >= LEAST_SHARE * (left + progress.copied_bytes) > 0:
        text += f"  {duration(left * seconds / progress.copied_bytes)} left"
    return text
