"""How a job is ended: first it may report what it has; then its command is killed, and in the end itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass

import psutil

from flatout.machine.tree import descendants
from flatout.probe.contract import RUN_VARIABLE

_AGAIN_S = 0.2  # a command may be starting processes meanwhile
_HARDER_S = 3.0


@dataclass(frozen=True)
class Ending:
    """What a job gets, and how long it has.

    Attributes:
        first: The signal that asks.
        gentle_s: Until what it measures, which may ignore signals, is killed.
        report_s: From then on, to report.
    """

    first: signal.Signals
    gentle_s: float
    report_s: float


CANCELLING = Ending(signal.SIGINT, 10.0, 15.0)
CLOSING = Ending(signal.SIGTERM, 3.0, 3.0)  # nobody reads a report any more


def at_deadline(deadline_s: float) -> Ending:
    """The ending that begins ``lead_s`` before a deadline: the command is over at it, and the report soon after."""
    return Ending(signal.SIGINT, max(lead_s(deadline_s), 1.0), 15.0)


def lead_s(deadline_s: float) -> float:
    """How long before its deadline a job is asked to end."""
    return min(0.1 * deadline_s, 5.0)


def end(process: subprocess.Popen[bytes], how: Ending) -> None:
    """End a job with all that it started."""
    for number, patience_s, kill in (
        (how.first, how.gentle_s, False),
        (None, how.report_s, True),
        (signal.SIGTERM, _HARDER_S, True),
    ):
        if number is not None:
            process.send_signal(number)
        if _wait(process, patience_s, kill):
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(process: subprocess.Popen[bytes], patience_s: float, kill: bool) -> bool:
    """True if it ended in time."""
    limit = time.monotonic() + patience_s
    while (left_s := limit - time.monotonic()) > 0:
        if kill:
            _kill_measured(process.pid)
        try:
            process.wait(min(left_s, _AGAIN_S) if kill else left_s)
            return True
        except subprocess.TimeoutExpired:
            continue
    return False


def _kill_measured(job: int) -> None:
    """Kill what a job measures, and none of flatout's own processes: those end in order, and write the record."""
    for process in descendants(job):
        try:
            if RUN_VARIABLE in process.environ():
                process.kill()
        except (psutil.Error, OSError):
            continue
