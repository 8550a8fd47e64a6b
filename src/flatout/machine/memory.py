"""Host memory, the limit that a control group sets on it, and /dev/shm."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flatout.machine import cgroups
from flatout.machine.files import read_fields, read_int, read_text

# v1 writes "no limit" as the largest page count in bytes (2**63 - 4096, less on some kernels).
_NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True)
class Memory:
    """Host memory in bytes."""

    total_bytes: int | None
    available_bytes: int | None  # what the kernel can give without swapping, on the whole machine
    limit_bytes: int | None  # set by a control group; None: no limit, unless named in not_measured
    limit_from: str | None  # the group's file
    huge_pages: str | None = None  # transparent ones: "always", "madvise" (where a program asks for them) or "never"

    @property
    def usable_bytes(self) -> int | None:
        """Total or limit, whichever is less."""
        return min((value for value in (self.total_bytes, self.limit_bytes) if value is not None), default=None)


@dataclass(frozen=True)
class Shm:
    """/dev/shm, through which DataLoader workers hand over their batches."""

    size_bytes: int | None
    free_bytes: int | None


@dataclass(frozen=True)
class Limit:
    """A memory limit and the group that sets it."""

    limit_bytes: int
    level: cgroups.Level
    file: str

    def used_bytes(self) -> int | None:
        """Memory in use by the group that cannot be reclaimed immediately: its usage less inactive file cache.

        This is the working set that container platforms watch; the plain usage counts the page
        cache too and nears the limit in any run that reads much.
        """
        v2 = self.level.version == 2
        usage = read_int(self.level.directory / ("memory.current" if v2 else "memory.usage_in_bytes"))
        stat = read_fields(read_text(self.level.directory / "memory.stat") or "")
        cache = stat.get("inactive_file" if v2 else "total_inactive_file")
        if usage is None or cache is None:
            return None
        return max(usage - cache, 0)


def _limit_of(level: cgroups.Level) -> Limit | None:
    names = ("memory.max",) if level.version == 2 else ("memory.limit_in_bytes",)
    limits = [(value, name) for name in names if (value := read_int(level.directory / name)) is not None]
    if level.version == 1:
        # The kernel's own least over all groups above, also those not visible in a container.
        above = read_fields(read_text(level.directory / "memory.stat") or "").get("hierarchical_memory_limit")
        if above is not None:
            limits.append((above, "memory.stat: hierarchical_memory_limit"))
    value, name = min(limits, key=lambda limit: limit[0], default=(_NO_LIMIT_BYTES, ""))
    return Limit(value, level, name) if value < _NO_LIMIT_BYTES else None


def tightest_limit(root: Path, pid: int | str = "self") -> Limit | None:
    """The limit that counts for the process: the least of its groups'.

    Among equals, the highest group: its usage includes that of the groups below it.
    """
    limits = [limit for level in cgroups.levels(root, "memory", pid) or [] if (limit := _limit_of(level))]
    # min() keeps the first among equals; a limit that only memory.stat shows comes last.
    return min(reversed(limits), key=lambda limit: (limit.limit_bytes, "stat" in limit.file), default=None)


def read_meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes; empty when it cannot be read."""
    fields: dict[str, int] = {}
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[0].isdigit() and words[1] == "kB":
            fields[name] = int(words[0]) * 1024
    return fields


def read_memory(root: Path, pid: int | str = "self") -> tuple[Memory, dict[str, str]]:
    """Read the machine's memory and the limit on it.

    Returns:
        The memory, and the reason for each field that could not be read.
    """
    missing: dict[str, str] = {}
    meminfo = read_meminfo(root)
    for name, key in (("total_bytes", "MemTotal"), ("available_bytes", "MemAvailable")):
        if key not in meminfo:
            missing[f"memory.{name}"] = f"/proc/meminfo has no {key}"
    limit = tightest_limit(root, pid)
    if limit is None and cgroups.levels(root, "memory", pid) is None:
        missing["memory.limit_bytes"] = f"/proc/{pid}/cgroup or mountinfo could not be read"
    return (
        Memory(
            total_bytes=meminfo.get("MemTotal"),
            available_bytes=meminfo.get("MemAvailable"),
            limit_bytes=limit.limit_bytes if limit else None,
            limit_from=f"{limit.level.name}/{limit.file}" if limit else None,
            huge_pages=_huge_pages(root),
        ),
        missing,
    )


def _huge_pages(root: Path) -> str | None:
    """The chosen word of a file such as "always [madvise] never"; None: a kernel without them."""
    choice = (read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or "").partition("[")[2]
    return choice.partition("]")[0] or None


def read_shm(root: Path) -> tuple[Shm, dict[str, str]]:
    """Size and free space of /dev/shm, in bytes."""
    try:
        space = os.statvfs(root / "dev/shm")
    except OSError as error:
        because = f"/dev/shm: {error.strerror}"
        return Shm(None, None), {"shm.size_bytes": because, "shm.free_bytes": because}
    return Shm(space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize), {}
