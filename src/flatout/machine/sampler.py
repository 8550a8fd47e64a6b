"""Machine samples while a run is on: one JSON line in system.jsonl each half second.

The fields are described in docs/record-format.md.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from flatout.machine import cgroups, counters
from flatout.machine.cores import read_cores
from flatout.machine.gpus import Nvml, gpu_devices
from flatout.machine.memory import Limit, tightest_limit
from flatout.machine.processes import Members, Neighbours, read_stat, sample_processes
from flatout.machine.pss import PssReader

REFRESH_INTERVAL_S = 5.0  # limits, and processes that came since
END_WITHIN_S = 5.0  # a sample takes some ms of a core, and far longer where many processes wait for one
_ROOT = Path("/")


class SystemSampler:
    """Samples the machine and a tree of processes in a separate thread.

    It never raises into its caller: what stops it (a full disk) is kept in ``problem``, and the
    samples written until then stay.

    Args:
        path: The file to append to.
        root_pid: The tree is this process and its descendants.
        interval_s: Time between samples, in seconds.
        adopter_pid: The process that orphans of the tree are handed to, when it is their subreaper.
        start_nvml: Makes the access to the GPUs; called in the thread, since it can take seconds.
        clock_ns: The clock of ``t``.
    """

    def __init__(
        self,
        path: Path,
        root_pid: int,
        interval_s: float = 0.5,
        *,
        adopter_pid: int | None = None,
        start_nvml: Callable[[], Nvml] = Nvml,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        if not interval_s > 0:
            raise ValueError(f"interval_s must be above 0, got {interval_s!r}")
        self.problem: str | None = None
        self.samples = 0
        self.cpu_s = 0.0  # CPU time that sampling has cost so far
        self._path = path
        self._root_pid = root_pid
        self._interval_s = interval_s
        self._start_nvml = start_nvml
        self._clock_ns = clock_ns
        self._members = Members(root_pid, adopter_pid)
        self._neighbours = Neighbours()
        self._pss = PssReader(root_pid)
        self._core_use = counters.CoreUse()
        self._nvml: Nvml | None = None
        self._next_slow_ns: int | None = None
        self._usable: float | None = None
        self._cpu_levels: list[cgroups.Level] = []
        self._memory_limit: Limit | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin sampling; the first sample is taken immediately."""
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="flatout-sampler", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads allowed
            self.problem = f"no machine samples: {error}"

    def stop(self) -> None:
        """Take a last sample and end; a sampler that hangs, such as in a driver, is left behind."""
        self._stop.set()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(timeout=END_WITHIN_S)

    def __enter__(self) -> SystemSampler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _look_up_limits(self) -> None:
        """Look up the tree's groups and cores; once it has ended, keep the last values seen."""
        root = read_stat(self._root_pid)
        if root is None or root.ended:
            return
        self._cpu_levels = cgroups.levels(_ROOT, "cpu", root.pid) or []
        self._memory_limit = tightest_limit(_ROOT, root.pid)
        self._usable = read_cores(_ROOT, root.pid)[0].usable

    def _run(self) -> None:
        try:
            self._nvml = self._start_nvml()
            with open(self._path, "ab", buffering=0) as file:
                self._write_samples(file.write)
        except OSError as error:
            self.problem = f"machine samples end after {self.samples}: {self._path.name}: {error.strerror or error}"
        except Exception as error:  # a fault of the sampler must not end the user's run
            self.problem = f"machine samples end after {self.samples}: {error!r}"
        finally:
            if self._nvml is not None:
                self._nvml.close()

    def _write_samples(self, write: Callable[[bytes], int]) -> None:
        due_s = time.monotonic()
        last = False
        while True:
            line = json.dumps(self.sample(), separators=(",", ":")).encode() + b"\n"
            # Usually one write per line. A short one means that the disk has just filled up;
            # the retry then raises the error.
            while line:
                line = line[write(line) :]
            self.samples += 1
            self.cpu_s = time.thread_time()
            if last:
                return
            # Samples keep to the grid; those missed (a suspended machine) are not made up for.
            due_s = max(due_s + self._interval_s, time.monotonic())
            last = self._stop.wait(due_s - time.monotonic())

    def sample(self) -> dict[str, Any]:
        """Take one sample."""
        now_ns = self._clock_ns()
        slow = self._next_slow_ns is None or now_ns >= self._next_slow_ns
        if slow:
            self._next_slow_ns = now_ns + int(REFRESH_INTERVAL_S * 1e9)
            self._look_up_limits()
        members = self._members.update(refresh=slow)
        return {
            "t": now_ns,
            "cpu": self._core_use.read(),
            "cpu_usable": self._usable,
            "throttled_ns": counters.throttled_ns(self._cpu_levels),
            "runqueue_ns": counters.runqueue_ns(_ROOT),
            "memory": counters.memory_use(_ROOT, self._memory_limit),
            "shm": counters.shm_use(_ROOT),
            "psi": counters.pressure(_ROOT),
            "disks": counters.disk_counts(_ROOT),
            "net": counters.network_counts(),
            "gpus": self._gpus(),
            "processes": sample_processes(members, self._pss.due(members, now_ns) if not self._stop.is_set() else {}),
            "neighbours": self._neighbours.busiest(self._members.outside, now_ns) if slow else None,
        }

    def _gpus(self) -> list[dict[str, Any]] | None:
        if self._nvml is not None and self._nvml.because is None:
            return self._nvml.sample()
        return None if gpu_devices(_ROOT) else []
