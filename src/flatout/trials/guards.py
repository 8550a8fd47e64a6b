"""Guards end a trial before it harms the machine or other people's work on it."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flatout.machine.gpus import Nvml
from flatout.machine.memory import read_meminfo, tightest_limit
from flatout.machine.tree import descendants
from flatout.units import percent, size

ROOT = Path("/")
LOOK_EVERY_S = 0.2
# A trial ends if less than these shares is left.
LEAST_MEMORY = 0.05
LEAST_SHM = 0.05
LEAST_DISK_BYTES = 512 << 20
FULL_GPU = 0.97
# On a GPU that another process uses too, a trial must not take memory that the other needs next.
FOREIGN_BYTES = 256 << 20


@dataclass(frozen=True)
class Room:
    """Free memory and disk, in bytes. None: unknown, or not present."""

    memory_bytes: int | None
    memory_total: int | None
    shm_bytes: int | None
    shm_total: int | None
    disk_bytes: int
    gpus: tuple[tuple[int, int], ...] = ()  # used and total of each


class Guard:
    """Watches the machine during a trial; call ``look`` often."""

    def __init__(
        self, scratch: Path, read: Callable[[Path], Room] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scratch, self._clock = scratch, clock
        self._nvml = Nvml() if read is None else None
        self._read = read or (lambda scratch: read_room(scratch, self._nvml))
        self._looked_s = -math.inf
        first = self._read(scratch)
        self._foreign = [used for used, _ in first.gpus]

    def look(self) -> str | None:
        """The reason why the trial must end now; None if it may continue."""
        now = self._clock()
        if now - self._looked_s < LOOK_EVERY_S:
            return None
        self._looked_s = now
        return self._reason(self._read(self._scratch))

    def close(self) -> None:
        """Release the driver's library."""
        if self._nvml is not None:
            self._nvml.close()

    def _reason(self, room: Room) -> str | None:
        if _short(room.memory_bytes, room.memory_total, LEAST_MEMORY):
            return (
                f"out of memory ahead: {size(room.memory_bytes or 0)} of {size(room.memory_total or 0)} host memory "
                f"left, the trial's processes hold {size(tree_bytes())}"
            )
        if _short(room.shm_bytes, room.shm_total, LEAST_SHM):
            return (
                f"out of memory ahead: {size(room.shm_bytes or 0)} of {size(room.shm_total or 0)} of /dev/shm left, "
                "through which workers hand over batches"
            )
        if room.disk_bytes < LEAST_DISK_BYTES:
            return f"disk: {size(room.disk_bytes)} left where the trial writes, {size(LEAST_DISK_BYTES)} are needed"
        for number, (used, total) in enumerate(room.gpus):
            foreign = self._foreign[number] if number < len(self._foreign) else 0
            if foreign >= FOREIGN_BYTES and total and used >= FULL_GPU * total:
                return (
                    f"out of memory ahead: GPU {number} is {percent(used / total)} full, and other processes use it too"
                )
        return None


def read_room(scratch: Path, nvml: Nvml | None) -> Room:
    """Read the free host memory, /dev/shm, GPU memory and disk of ``scratch``."""
    memory, total = host_memory()
    shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    gpus = nvml.sample() if nvml is not None else []
    return Room(
        memory_bytes=memory,
        memory_total=total,
        shm_bytes=shm.f_bavail * shm.f_frsize if shm else None,
        shm_total=shm.f_blocks * shm.f_frsize if shm else None,
        disk_bytes=shutil.disk_usage(scratch).free,
        gpus=tuple((gpu["memory_used"] or 0, gpu["memory_total"] or 0) for gpu in gpus),
    )


def _short(left: int | None, total: int | None, least: float) -> bool:
    return left is not None and bool(total) and left < least * (total or 0)


def host_memory() -> tuple[int | None, int | None]:
    """Free and total bytes of host memory: of the control group or of the machine, whichever has less free."""
    meminfo = read_meminfo(ROOT)
    left, total = meminfo.get("MemAvailable"), meminfo.get("MemTotal")
    limit = tightest_limit(ROOT)
    used = limit.used_bytes() if limit else None
    if limit is not None and used is not None and (left is None or limit.limit_bytes - used < left):
        return limit.limit_bytes - used, limit.limit_bytes
    return left, total


def tree_bytes() -> int:
    """Host memory of all processes below this one: proportional shares, so that shared pages count once."""
    held = 0
    for process in descendants(os.getpid()):
        try:
            held += process.memory_full_info().pss
        except Exception:  # it has ended, or belongs to somebody else
            continue
    return held
