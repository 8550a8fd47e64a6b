"""Folders that Python's multiprocessing makes in the temporary folder, and leaves there when a signal ends it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import psutil

from flatout.machine.tree import descendants
from flatout.runner.guardian import NEW_S, PAUSE_S, being_made, temporary_folders

# multiprocessing.util.get_temp_dir names them so; workers listen in them to hand over shared tensors.
_PREFIX = "pymp-"


def multiprocessing_folders() -> set[Path]:
    """Folders in which descendants of this process listen right now: known only while they live."""
    found = set()
    for process in descendants(os.getpid()):
        try:
            sockets = process.net_connections(kind="unix")
        except (psutil.Error, OSError):
            continue
        for socket in sockets:
            folder = Path(str(socket.laddr)).parent
            if folder.is_absolute() and folder.name.startswith(_PREFIX):
                found.add(folder)
    return found


def wait_for_listeners(pid: int) -> None:
    """Wait until processes listen in the folders that they have just made where process ``pid`` has temporary files."""
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < NEW_S and being_made(temporary_folders({pid})):
        time.sleep(PAUSE_S)


def remove(folders: set[Path]) -> None:
    """Remove folders of processes that have been ended; those that removed their own are gone already."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
