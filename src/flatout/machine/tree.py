"""Ending a whole tree of processes: workers, grandchildren and what has made itself a daemon.

A process is identified by pid and creation time together, so that a pid that was reused in the
meantime is never signalled. Only descendants of this process are ended, and never this process:
with ``become_subreaper`` called before the tree is started, daemons stay descendants too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable

import psutil

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_KILL_WAIT_S = 10.0  # a killed process gives its memory back first, and needs a core for that


def become_subreaper() -> bool:
    """Have orphaned descendants handed to this process rather than to init.

    Returns:
        Whether the kernel agreed. If not, daemons of the tree escape ``end_tree``.
    """
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def descendants(pid: int) -> list[psutil.Process]:
    """The living processes below ``pid``, itself not included; empty when it is gone.

    A zombie has ended and is left out, so that an orphan which nobody has reaped yet does not
    look as if the tree went on.
    """
    return [process for process in _below(pid) if _alive(process)]


def is_running(pid: int) -> bool:
    """True if there is such a process, and it has not ended."""
    try:
        return _alive(psutil.Process(pid))
    except psutil.Error:
        return False


def _below(pid: int) -> list[psutil.Process]:
    """As ``descendants``, zombies included."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def end_tree(
    roots: int | Iterable[int],
    grace_s: float = 5.0,
    first: signal.Signals = signal.SIGTERM,
    spared: Iterable[int] = (),
) -> list[int]:
    """End processes and all their descendants; those that start meanwhile too.

    Each gets ``first``, has ``grace_s`` to end, and is then killed. Ended children of this process
    are reaped, except those in ``roots``: their exit status is left to who started them.

    Args:
        roots: Pids. This process's own pid stands for all its descendants, which includes
            daemons that were handed to it as subreaper.
        grace_s: Seconds between ``first`` and SIGKILL.
        first: The signal that asks.
        spared: Pids to leave alone, with their descendants.

    Returns:
        Pids that are still alive: processes stuck in the kernel, or of another user.
    """
    pids = {roots} if isinstance(roots, int) else set(roots)
    tree = _Tree(pids, set(spared))
    if not tree.wait(grace_s, first) and not tree.wait(_KILL_WAIT_S, signal.SIGKILL):
        return sorted(process.pid for process in tree.living())
    return []


class _Tree:
    """The processes to end, and which of them have been sent which signal."""

    def __init__(self, roots: set[int], spared: set[int]) -> None:
        self._roots = roots
        self._spared = spared
        self._members: set[psutil.Process] = set()

    def wait(self, timeout_s: float, number: signal.Signals) -> bool:
        """Signal every member once, newcomers too, until all have ended (True) or time is up."""
        deadline_s = time.monotonic() + timeout_s
        pause_s = 0.01
        signalled: set[psutil.Process] = set()
        while True:
            living = self.living()
            if not living:
                return True
            for process in living:
                if process not in signalled:
                    signalled.add(process)
                    _send(process, number)
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, 0.1)

    def living(self) -> list[psutil.Process]:
        """Collect the members anew; reap those that have ended."""
        below_us = _below(os.getpid())
        spared = {process for process in below_us if process.pid in self._spared}
        for process in list(spared):
            spared.update(descendants(process.pid))
        # Members seen before stay: without a subreaper, those whose parent has ended are
        # no descendants of ours any more, and neither is what they start.
        for process in self._members.difference(below_us):
            self._members.update(descendants(process.pid) if _alive(process) else ())
        self._members.update(_in_trees(self._roots, below_us))
        self._members -= spared
        living = {process for process in self._members if _alive(process)}
        # Only what was seen to have ended is dropped, so none slips away as a zombie.
        for process in (self._members - living).intersection(below_us):
            if process.pid not in self._roots:
                _reap(process)
        self._members = living
        return list(living)


def _in_trees(roots: set[int], below_us: list[psutil.Process]) -> list[psutil.Process]:
    """Those of our descendants that are in ``roots`` or below them."""
    if os.getpid() in roots:
        return below_us
    found: list[psutil.Process] = []
    for process in below_us:
        if process.pid in roots:
            found += [process, *_below(process.pid)]
    return found


def _alive(process: psutil.Process) -> bool:
    """Still running as the same process; a zombie has ended."""
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error, OSError):
        process.send_signal(number)
        # A stopped process acts on a signal only when it goes on.
        process.send_signal(signal.SIGCONT)


def _reap(process: psutil.Process) -> None:
    """Take the exit status of an ended child, so that no zombie stays; nothing if it is not our child."""
    with contextlib.suppress(OSError):
        os.waitpid(process.pid, os.WNOHANG)
