"""The machine's counters: cores, throttling, pressure, memory, disks and networks.

Each function reads one counter group and returns None if it is missing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from flatout.machine import cgroups
from flatout.machine.files import read_fields, read_text
from flatout.machine.memory import Limit, read_meminfo


class CoreUse:
    """Busy fraction of each core since the previous call."""

    def __init__(self) -> None:
        self._before: list[tuple[float, float]] | None = None

    def read(self) -> list[float] | None:
        """One number (0 to 1) a core; None at the first call and when cores came or went."""
        before, self._before = self._before, self._now()
        after = self._before
        if before is None or after is None or len(before) != len(after):
            return None
        return [
            # The kernel's idle counters can step back by a little.
            round(min(max((busy - busy0) / (total - total0), 0.0), 1.0), 3) if total > total0 else 0.0
            for (busy0, total0), (busy, total) in zip(before, after, strict=True)
        ]

    @staticmethod
    def _now() -> list[tuple[float, float]] | None:
        try:
            cores = psutil.cpu_times(percpu=True)
        except (OSError, RuntimeError):
            return None
        # A guest's time is in user and nice as well. Waiting for a disk is idle: another thread could run.
        totals = [sum(core) - getattr(core, "guest", 0.0) - getattr(core, "guest_nice", 0.0) for core in cores]
        return [
            (total - core.idle - getattr(core, "iowait", 0.0), total) for core, total in zip(cores, totals, strict=True)
        ]


def throttled_ns(levels: Sequence[cgroups.Level]) -> int | None:
    """Time that CPU quotas held threads back: cumulative, summed over cores.

    Of several groups with a quota the one that has throttled most, since their times overlap.
    """
    times = []
    for level in levels:
        stat = read_fields(read_text(level.directory / "cpu.stat") or "")
        if level.version == 2 and "throttled_usec" in stat:
            times.append(stat["throttled_usec"] * 1000)
        elif level.version == 1 and "throttled_time" in stat:
            times.append(stat["throttled_time"])
    return max(times, default=None)


def runqueue_ns(root: Path) -> int | None:
    """Time that threads of the whole machine were ready but waited for a core: cumulative.

    From the per-core lines of /proc/schedstat, which many kernels do not offer.
    """
    waits = []
    for line in (read_text(root / "proc/schedstat") or "").splitlines():
        fields = line.split()
        if len(fields) >= 10 and fields[0].startswith("cpu"):
            waits.append(int(fields[8]))
    return sum(waits) if waits else None


def pressure(root: Path) -> dict[str, dict[str, int | None] | None]:
    """Pressure stall information: µs in which some, and all, tasks were stalled; cumulative."""
    found: dict[str, dict[str, int | None] | None] = {}
    for resource in ("cpu", "io", "memory"):
        text = read_text(root / "proc/pressure" / resource)
        totals: dict[str, int | None] = {"some": None, "full": None}
        for line in (text or "").splitlines():
            kind, _, rest = line.partition(" ")
            _, _, total = rest.rpartition("total=")
            if kind in totals and total.isdigit():
                totals[kind] = int(total)
        found[resource] = totals if totals["some"] is not None else None
    return found


def memory_use(root: Path, limit: Limit | None) -> dict[str, int | None]:
    """``memory`` of system.jsonl in bytes: against the group's limit where there is one, else the machine's total.

    ``used`` excludes memory that the kernel can reclaim immediately (page cache not in use).
    """
    meminfo = read_meminfo(root)
    total, available = meminfo.get("MemTotal"), meminfo.get("MemAvailable")
    if limit is not None and (total is None or limit.limit_bytes < total):
        used = limit.used_bytes()
        if used is not None:
            left = max(limit.limit_bytes - used, 0)
            available = left if available is None else min(left, available)
        return {"used": used, "limit": limit.limit_bytes, "available": available if used is not None else None}
    used = None if total is None or available is None else total - available
    return {"used": used, "limit": total, "available": available}


def shm_use(root: Path) -> dict[str, int] | None:
    """``shm`` of system.jsonl in bytes."""
    try:
        space = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return {"used": (space.f_blocks - space.f_bfree) * space.f_frsize, "size": space.f_blocks * space.f_frsize}


def disk_counts(root: Path) -> dict[str, dict[str, int | None]] | None:
    """Whole disks, cumulative since boot. Partitions are left out, as are loop and memory devices.

    A mapped or RAID device is listed along with its member disks: do not add them up.
    """
    try:
        whole = set(os.listdir(root / "sys/block"))
        disks = psutil.disk_io_counters(perdisk=True, nowrap=False)
    except (OSError, RuntimeError, NotImplementedError):
        return None
    return {
        name: {
            "read_bytes": disk.read_bytes,
            "read_count": disk.read_count,
            "write_bytes": disk.write_bytes,
            "busy_ms": getattr(disk, "busy_time", None),
        }
        for name, disk in disks.items()
        if name in whole and not name.startswith(("loop", "ram", "zram"))
    }


def network_counts() -> dict[str, dict[str, int]] | None:
    """Bytes by network interface, cumulative."""
    try:
        networks: dict[str, Any] = psutil.net_io_counters(pernic=True, nowrap=False)
    except (OSError, RuntimeError, NotImplementedError):
        return None
    return {name: {"recv": net.bytes_recv, "sent": net.bytes_sent} for name, net in networks.items()}
