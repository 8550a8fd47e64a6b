"""Jobs: flatout's own commands as child processes, started, waited for, and ended with all that they started."""

from __future__ import annotations

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

MOST_JOBS = 64  # finished ones that are kept
MOST_RUNNING = 4
MOST_OUTPUT = 32 << 20  # bytes of a result that are read
_TAIL = 8192  # bytes of the output in which the latest line is looked for
_INTERRUPT_S, _TERMINATE_S = 15.0, 15.0  # to report what there is; to end the processes below
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
        deadline_s: seconds after its start at which it is ended; None: no limit.
    """

    id: str
    tool: str
    arguments: list[str]
    deadline_s: float | None
    process: subprocess.Popen[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
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
        """Until the deadline; None: there is none."""
        return None if self.deadline_s is None else max(self.deadline_s - (time.monotonic() - self.began), 0.0)

    @property
    def progress(self) -> str:
        """The latest line that it wrote for people."""
        lines = self.messages.replace("\r", "\n").splitlines()
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    @property
    def messages(self) -> str:
        """The end of its standard error."""
        size = os.fstat(self.stderr.fileno()).st_size
        return os.pread(self.stderr.fileno(), _TAIL, max(size - _TAIL, 0)).decode("utf-8", "replace")

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

    def end(self, why: str) -> None:
        """Ctrl-C, so that it reports what it has; then harder, until no process is left. Takes up to half a minute."""
        with self._ending:
            if not self.running:
                return
            self.why_ended = why
            for number, patience_s in ((signal.SIGINT, _INTERRUPT_S), (signal.SIGTERM, _TERMINATE_S)):
                self._signal(number, whole_group=False)
                try:
                    self.process.wait(patience_s)
                    break
                except subprocess.TimeoutExpired:
                    continue
            self._signal(signal.SIGKILL, whole_group=True)
            self.process.wait()

    def _signal(self, number: int, whole_group: bool) -> None:
        try:
            if whole_group:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)
        except ProcessLookupError:
            pass


class Jobs:
    """All jobs of a server."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._count = 0
        self._closed = threading.Event()
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
            UsageError: too many are running, or it cannot be started.
        """
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
                raise UsageError(f"the command cannot be started: {error}") from None
        self._count += 1
        job = Job(f"{tool}-{self._count}", tool, list(arguments), deadline_s, process, out, err)
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
        endings = [threading.Thread(target=job.end, args=(CANCELLED,)) for job in self._jobs.values() if job.running]
        for ending in endings:
            ending.start()
        for ending in endings:
            ending.join()
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
                if job.deadline_s is not None and not job.why_ended and job.running and not job.left_s:
                    threading.Thread(target=job.end, args=(OUT_OF_TIME,), daemon=True).start()
