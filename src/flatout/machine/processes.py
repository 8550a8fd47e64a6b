"""The processes of a run and the resources that each has used, from one read of /proc/PID/stat."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Stat:
    """The fields of /proc/PID/stat, see proc_pid_stat(5)."""

    pid: int
    ppid: int
    state: str
    start_ticks: int  # since boot: with the pid, names a process for good
    rss_bytes: int
    cpu_s: float  # user and system, ended children not included
    threads: int
    major_faults: int
    minor_faults: int = 0
    system_s: float = 0.0  # the part of ``cpu_s`` in the kernel
    children_s: float = 0.0  # CPU time of its ended children and of theirs
    name: str = ""  # at most 15 bytes of it

    @property
    def ended(self) -> bool:
        """Dead, though perhaps not yet waited for by its parent."""
        return self.state in ("Z", "X", "x")


def read_stat(pid: int) -> Stat | None:
    """Read one process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return None
    # The name comes second, in parentheses, and may itself hold blanks and parentheses.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 22:
        return None
    return Stat(
        pid=pid,
        ppid=int(fields[1]),
        state=fields[0].decode(),
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        threads=int(fields[17]),
        major_faults=int(fields[9]),
        minor_faults=int(fields[7]),
        system_s=int(fields[12]) / _TICKS_PER_S,
        children_s=(int(fields[13]) + int(fields[14])) / _TICKS_PER_S,
        name=text[text.find(b"(") + 1 : text.rfind(b")")].decode("utf-8", "replace"),
    )


def read_pss_bytes(pid: int) -> int | None:
    """Proportional set size: shared pages counted in parts, so that processes can be added up.

    Walks the page tables of the process: milliseconds for gigabytes, so not for every sample.
    None when the process is gone, belongs to somebody else, or the kernel is older than 4.14.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


def read_runqueue_s(pid: int) -> float | None:
    """Seconds that the first thread of a process was ready and had no core; None where the kernel has no schedstat."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb", buffering=0) as file:
            return int(file.read(128).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def all_pids() -> list[int]:
    """Every process that is visible here; empty when /proc cannot be listed."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


class Members:
    """The living processes of a tree, followed over time.

    A process once seen in the tree stays a member when its parent ends and it is handed to
    another one. Processes known to be outside are not read again until ``refresh``, which keeps
    a sample cheap on a machine with thousands of processes.

    Args:
        root_pid: The tree is this process and its descendants.
        adopter_pid: Children of this process that started after the root are members too: the
            orphans of the tree, when that process is their subreaper.
    """

    def __init__(self, root_pid: int, adopter_pid: int | None = None) -> None:
        self._root_pid = root_pid
        self._adopter_pid = adopter_pid
        root = read_stat(root_pid)
        self._root_start = root.start_ticks if root else None
        self._members: dict[int, int] = {}  # pid -> start_ticks
        self._outside: set[int] = set()
        self.outside: list[Stat] = []  # processes outside the tree, as of the last ``refresh``

    def update(self, refresh: bool = False) -> list[Stat]:
        """Look for new and ended processes.

        Args:
            refresh: Read those known to be outside again too: a pid may have been reused.
        """
        pids = all_pids()
        if refresh:
            self._outside.clear()
        self._outside.intersection_update(pids)
        living: dict[int, Stat] = {}
        strangers: dict[int, Stat] = {}
        for pid in pids:
            if pid in self._outside:
                continue
            stat = read_stat(pid)
            if stat is None or stat.ended:
                continue
            if self._members.get(pid) == stat.start_ticks or self._is_root(stat):
                living[pid] = stat
            else:
                strangers[pid] = stat
        seen = list(strangers.values())
        for stat in seen:
            if stat.pid in strangers:
                self._place(stat, strangers, living)
        if refresh:
            self.outside = [stat for stat in seen if stat.pid in self._outside]
        self._members = {pid: stat.start_ticks for pid, stat in living.items()}
        return sorted(living.values(), key=lambda stat: (stat.start_ticks, stat.pid))

    def _is_root(self, stat: Stat) -> bool:
        return stat.pid == self._root_pid and stat.start_ticks == self._root_start

    def _is_orphan(self, stat: Stat) -> bool:
        return (
            self._adopter_pid is not None
            and stat.ppid == self._adopter_pid
            and self._root_start is not None
            and stat.start_ticks >= self._root_start
        )

    def _place(self, stat: Stat, strangers: dict[int, Stat], living: dict[int, Stat]) -> None:
        """Walk up from a stranger to a member, or to nothing, and settle all on the way."""
        path = [stat]
        while path[-1].ppid in strangers and len(path) <= len(strangers):
            path.append(strangers[path[-1].ppid])
        inside = path[-1].ppid in living
        for step in reversed(path):
            inside = inside or self._is_orphan(step)
            if inside:
                living[step.pid] = step
            else:
                self._outside.add(step.pid)
            strangers.pop(step.pid, None)


class Neighbours:
    """Processes outside the tree, and the cores that each uses."""

    MOST = 5

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], float] = {}
        self._before_ns = 0

    def busiest(self, outside: list[Stat], now_ns: int) -> list[dict[str, Any]]:
        """The busiest ones since the last call; this process is left out."""
        after = {(stat.pid, stat.start_ticks): stat for stat in outside if stat.pid != os.getpid()}
        elapsed_s = (now_ns - self._before_ns) / 1e9
        used = {key: stat.cpu_s - self._before[key] for key, stat in after.items() if key in self._before}
        self._before, self._before_ns = {key: stat.cpu_s for key, stat in after.items()}, now_ns
        busiest = sorted(used, key=lambda key: -used[key])[: self.MOST] if elapsed_s > 0 else []
        return [
            {"pid": key[0], "name": after[key].name, "cores": round(used[key] / elapsed_s, 3)}
            for key in busiest
            if used[key] > 0
        ]


def sample_processes(members: list[Stat], pss: Mapping[int, int | None]) -> list[dict[str, Any]]:
    """``processes`` of system.jsonl.

    Args:
        members: As from ``Members.update``.
        pss: Process -> its proportional set size in bytes, where it was read.
    """
    return [
        {
            "pid": stat.pid,
            "ppid": stat.ppid,
            "name": stat.name,
            "rss": stat.rss_bytes,
            "pss": pss.get(stat.pid),
            "cpu_s": stat.cpu_s,
            "system_s": stat.system_s,
            "children_s": stat.children_s,
            "runqueue_s": read_runqueue_s(stat.pid),
            "threads": stat.threads,
            "majflt": stat.major_faults,
            "minflt": stat.minor_faults,
        }
        for stat in members
    ]
