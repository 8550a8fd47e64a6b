"""Proportional set sizes of the processes that a training starts, read so seldom that the training does not notice."""

from __future__ import annotations

import time
from collections.abc import Callable

from flatout.machine.processes import Stat, read_pss_bytes

INTERVAL_S = 5.0
# The kernel walks the page tables of a process, and holds up its page faults meanwhile: 36 ms of a core for one that
# has imported torch (2 busy cores, kernel 6.18). So one process is read at a time, for at most this share of a core.
MOST_OF_A_CORE = 0.005


class PssReader:
    """Reads one process at a time: those without children, never the root, which trains.

    Args:
        root_pid: The first process of the tree.
        read: Bytes of a process; None: it is gone.
        clock: CPU seconds of this thread.
    """

    def __init__(
        self,
        root_pid: int,
        read: Callable[[int], int | None] = read_pss_bytes,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._root_pid, self._read, self._clock = root_pid, read, clock
        self._read_at_ns: dict[tuple[int, int], int] = {}
        self._next_ns = 0

    def due(self, members: list[Stat], now_ns: int) -> dict[int, int | None]:
        """The size, in bytes, of the process whose turn it is; empty if it is nobody's.

        Args:
            members: The tree's processes.
            now_ns: Of the sample.
        """
        parents = {stat.ppid for stat in members}
        workers = [stat for stat in members if stat.pid != self._root_pid and stat.pid not in parents]
        if now_ns < self._next_ns or not workers:
            return {}
        chosen = min(workers, key=lambda stat: (self._read_at_ns.get((stat.pid, stat.start_ticks), 0), -stat.rss_bytes))
        begin_s = self._clock()
        size = self._read(chosen.pid)
        cost_s = self._clock() - begin_s
        self._read_at_ns[chosen.pid, chosen.start_ticks] = now_ns
        self._next_ns = now_ns + int(max(INTERVAL_S, cost_s / MOST_OF_A_CORE) * 1e9)
        return {chosen.pid: size}
