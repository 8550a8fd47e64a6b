"""Files that a run leaves behind in /dev/shm: reported, and removed if flatout itself ended the owner."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from flatout.machine.files import read_text
from flatout.machine.processes import all_pids, read_stat

SHM = Path("/dev/shm")
# Names that hold their owner's pid: torch's shared tensors and the registration of OpenMP runtimes.
_OWNER = re.compile(r"^(?:torch_|__KMP_REGISTERED_LIB_)(\d+)_")


def shm_names(shm: Path = SHM) -> set[str]:
    """The files in /dev/shm; empty when it cannot be listed."""
    try:
        return {entry.name for entry in os.scandir(shm) if entry.is_file(follow_symlinks=False)}
    except OSError:
        return set()


def left_in_shm(before: set[str], shm: Path = SHM, of: set[int] | None = None) -> list[str]:
    """Files of this user that are new since ``before`` and whose processes are gone.

    A name that holds a pid belongs to that process. Any other (``psm_…`` of multiprocessing, semaphores)
    counts as left if no process of this user has it open or mapped; its owner cannot be determined.

    Args:
        before: names to leave out.
        shm: the folder.
        of: of names that hold a pid, only those of these processes; None: of any.
    """
    new = {name for name in shm_names(shm) - before if _is_ours(shm / name)}
    if not new:
        return []
    owners = {name: int(match[1]) for name in new if (match := _OWNER.match(name))}
    ours = [(name, pid) for name, pid in owners.items() if of is None or pid in of]
    left = [name for name, pid in ours if (stat := read_stat(pid)) is None or stat.ended]
    unowned = new - owners.keys()
    if unowned:
        used: set[str] = set()
        for pid in all_pids():
            used.update(_names_in_use(pid, shm))
        left += unowned - used
    return sorted(left)


def remove_left(before: set[str], pids: set[int], shm: Path = SHM) -> None:
    """Remove the segments that processes left because they were ended in the middle of making one.

    A DataLoader worker gives its shared tensors no lasting name: torch makes the file and unlinks it at
    once. A signal in between, while a large segment is being filled, leaves the file there for ever.

    Args:
        before: Names to leave alone: those that were there before the processes started.
        pids: The processes that were ended; segments of any other process stay.
        shm: The folder.
    """
    for name in left_in_shm(before, shm):
        match = _OWNER.match(name)
        if match and int(match[1]) in pids:
            with contextlib.suppress(OSError):
                (shm / name).unlink()


def _is_ours(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.getuid()
    except OSError:
        return False  # gone in the meantime


def _names_in_use(pid: int, shm: Path) -> Iterator[str]:
    """Names of files in /dev/shm that a process has mapped or open; empty for another user's process."""
    prefix = f"{shm}/"
    for line in (read_text(Path(f"/proc/{pid}/maps")) or "").splitlines():
        _, found, name = line.partition(prefix)
        if found:
            yield name.removesuffix(" (deleted)")
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith(prefix):
                    yield target.removeprefix(prefix)
