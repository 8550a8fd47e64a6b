"""The live page of a run that this process records, in a process of its own: it takes nothing from the training."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flatout.probe.contract import RUN_VARIABLE

END_WITHIN_S = 5.0


class Companion:
    """Starts the page once the run folder is known; does nothing before."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, run: Path) -> int:
        """Serve the page of this run, and print its address on standard error; returns the pid of its process.

        A session of its own: Ctrl-C ends the recording, and the page shows that. If this process is killed, the page
        ends with the first minute in which nothing is recorded.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flatout", "watch", str(run), "--page", "--quiet"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != RUN_VARIABLE},
            start_new_session=True,
        )
        return self._process.pid

    def end(self) -> None:
        """Wait until the page shows the end of the run, which has been written, and end it."""
        if self._process is None:
            return
        try:
            self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()


@contextmanager
def live_page() -> Iterator[Companion]:
    """A companion that is ended with the block."""
    companion = Companion()
    try:
        yield companion
    finally:
        companion.end()
