"""Jobs: flatout's own commands as child processes, started, waited for, and ended with all that they started."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from flatout.errors import UsageError
from flatout.mcp_server.endings import CANCELLING, CLOSING, Ending, at_deadline, end, lead_s
from flatout.terminal_text import readable

MOST_JOBS = 64  # finished ones that are kept
MOST_RUNNING = 4
MOST_OUTPUT = 32 << 20  # bytes of a result that are read
MOST_PRINTED = 1 << 20  # bytes of other output that are shown, the last ones
_TAIL = 8192  # bytes of the output in which the latest line is looked for
_PR_SET_PDEATHSIG = 1

RUNNING, DONE, FAILED, CANCELLED, OUT_OF_TIME = "running", "done", "failed", "cancelled", "out_of_time"


def run_below(parent: int, arguments: Sequence[str]) -> None:
    """Become a flatout command that gets SIGTERM when its parent is gone, however that ended; does not return.

    Args:
        parent: process id of the server.
        arguments: what follows ``flatout``.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was gone before
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "flatout", *arguments])


@dataclass
class Job:
    """One command. Its output goes to files without names, so that nothing is left behind.

    Attributes:
        id: of the job.
        tool: that started it.
        arguments: of flatout.
        folder: working directory.
        deadline_s: seconds after its start at which it has ended; None: no limit.
        planned_s: seconds in which it means to end by itself; None: not said.
    """

    id: str
    tool: str
    arguments: list[str]
    folder: Path
    deadline_s: float | None
    process: subprocess.Popen[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    planned_s: float | None = None
    why_ended: str = ""  # CANCELLED, OUT_OF_TIME; empty: by itself
    _ending: threading.Lock = field(default_factory=threading.Lock)

    @property
    def running(self) -> bool:
        """It has not ended."""
        if self.process.poll() is None:
            return True
        self.ended = self.ended or time.monotonic()
        return False

    @property
    def state(self) -> str:
        """One of the five words above."""
        if self.running:
            return RUNNING
        if self.why_ended:
            return self.why_ended
        return DONE if self.result is not None or not self.process.returncode else FAILED

    @property
    def spent_s(self) -> float:
        """Since the start, or until its end."""
        return (self.ended or time.monotonic()) - self.began

    @property
    def left_s(self) -> float | None:
        """Until the deadline, or the end that it plans, whichever is first; None: there is none."""
        limits = [limit_s for limit_s in (self.deadline_s, self.planned_s) if limit_s is not None]
        return max(min(limits) - (time.monotonic() - self.began), 0.0) if limits else None

    @property
    def progress(self) -> str:
        """The latest line that it wrote for people."""
        return next((line.strip()[:300] for line in reversed(self.messages.splitlines()) if line.strip()), "")

    @property
    def messages(self) -> str:
        """The end of its standard error, without escape codes."""
        return readable(_end_of(self.stderr, _TAIL))

    @property
    def printed(self) -> str:
        """What it and its command printed for people, without escape codes: the last of it."""
        parts = [_end_of(self.stderr, MOST_PRINTED)]
        if self.result is None:
            parts.insert(0, _end_of(self.stdout, MOST_PRINTED))
        return readable(b"".join(parts)[-MOST_PRINTED:])

    @property
    def text(self) -> str:
        """Its standard output."""
        return os.pread(self.stdout.fileno(), MOST_OUTPUT, 0).decode("utf-8", "replace")

    @property
    def result(self) -> Any:
        """The JSON that it printed; None: none, or not yet."""
        if self.running:
            return None
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    @property
    def late(self) -> bool:
        """It is time to end it, so that it is over at its deadline."""
        spent_s = time.monotonic() - self.began
        return self.deadline_s is not None and self.deadline_s - spent_s <= lead_s(self.deadline_s)

    def end(self, why: str, how: Ending = CANCELLING) -> None:
        """End it, so that it reports what it has; in the end, until no process is left."""
        with self._ending:
            if self.running:
                self.why_ended = why
                end(self.process, how)

    def kill(self) -> None:
        """End it at once; guardians end what it measures."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _end_of(file: IO[bytes], most: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), most, max(size - most, 0))


class Jobs:
    """All jobs of a server."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._count = 0
        self._closed = threading.Event()
        self._closing = threading.Lock()
        threading.Thread(target=self._watch_deadlines, daemon=True, name="deadlines").start()

    def start(
        self, tool: str, arguments: Sequence[str], folder: Path, deadline_s: float | None, stdin: bytes = b""
    ) -> Job:
        """Start a command of flatout. Call it from a thread that lives as long as the server: its end ends the job.

        Args:
            tool: that wants it.
            arguments: of flatout.
            folder: working directory.
            deadline_s: after which it is ended.
            stdin: what it reads.

        Raises:
            UsageError: too many are running, the server is ending, or it cannot be started.
        """
        if self._closed.is_set():
            raise UsageError("the server is ending; start it again")
        if sum(job.running for job in self._jobs.values()) >= MOST_RUNNING:
            raise UsageError(f"{MOST_RUNNING} jobs are running: wait for one (status), or cancel one")
        self._forget()
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (closed when forgotten)
        with tempfile.TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            code = f"from flatout.mcp_server.jobs import run_below; import sys; run_below({os.getpid()}, sys.argv[1:])"
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", code, *arguments],
                    cwd=folder, stdin=given, stdout=out, stderr=err, start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                raise UsageError(f"the command cannot be started: {why}") from None
        self._count += 1
        job = Job(f"{tool}-{self._count}", tool, list(arguments), folder, deadline_s, process, out, err)
        self._jobs[job.id] = job
        return job

    def find(self, id: str) -> Job:
        """The job of that id.

        Raises:
            UsageError: there is none.
        """
        job = self._jobs.get(id)
        if job is None:
            known = ", ".join(self._jobs) or "none was started"
            raise UsageError(f"job {id[:60]!r} is not known; known: {known}")
        return job

    def all(self) -> list[Job]:
        """All that are remembered, in the order of their start."""
        return list(self._jobs.values())

    def close(self) -> None:
        """End and forget all."""
        self._closed.set()
        with self._closing:
            running = [job for job in self._jobs.values() if job.running]
            endings = [threading.Thread(target=job.end, args=(CANCELLED, CLOSING)) for job in running]
            for ending in endings:
                ending.start()
            limit = time.monotonic() + CLOSING.gentle_s + CLOSING.report_s + 2.0
            for ending in endings:
                ending.join(max(limit - time.monotonic(), 0.0))
            for job in running:
                job.kill()  # one that was being ended patiently
            while self._jobs:
                self._drop(next(iter(self._jobs)))

    def _drop(self, id: str) -> None:
        job = self._jobs.pop(id)
        job.stdout.close()
        job.stderr.close()

    def _forget(self) -> None:
        over = [job for job in self._jobs.values() if not job.running]
        for job in over[: max(len(over) - MOST_JOBS + 1, 0)]:
            self._drop(job.id)

    def _watch_deadlines(self) -> None:
        while not self._closed.wait(0.2):
            for job in list(self._jobs.values()):
                if job.deadline_s is not None and job.late and not job.why_ended and job.running:
                    how = at_deadline(job.deadline_s)
                    threading.Thread(target=job.end, args=(OUT_OF_TIME, how), daemon=True).start()
