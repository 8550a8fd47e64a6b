"""The server over standard streams, which ends with the client that started it, however that went."""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path

from flatout.errors import SIGNAL_CODE
from flatout.mcp_server.jobs import Jobs
from flatout.mcp_server.server import build

_READER_GONE = 1  # as of every command whose reader goes away


def serve_standard_streams(root: Path) -> None:
    """Serve the client that started this process, until it closes a stream; then end all jobs."""
    jobs = Jobs()
    _end_at_signals(jobs)
    _end_without_reader(jobs)
    try:
        build(root, jobs).run("stdio")
    except BaseExceptionGroup as group:
        if group.split(BrokenPipeError)[1] is not None:
            raise
        raise BrokenPipeError from None
    finally:
        jobs.close()


def _end_at_signals(jobs: Jobs) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: _end(jobs, SIGNAL_CODE + number))


def _end_without_reader(jobs: Jobs) -> None:
    """End when the client closes the other end of standard output: nobody would hear of a result."""
    watched = os.dup(1)  # the transport puts another file in the place of 1

    def watch() -> None:
        poll = select.poll()
        poll.register(watched, 0)  # an error or a hang-up only
        poll.poll()
        _end(jobs, _READER_GONE)

    threading.Thread(target=watch, daemon=True, name="reader of standard output").start()


def _end(jobs: Jobs, code: int) -> None:
    """End the jobs and then the process: a thread that reads standard input could hold an orderly exit up."""

    def end() -> None:
        jobs.close()
        os._exit(code)

    threading.Thread(target=end, daemon=True).start()
