"""Folders that Python's multiprocessing makes in the temporary folder, and leaves there when a signal ends it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from flatout.machine.tree import descendants
from flatout.runner.guardian import NEW_S, PAUSE_S, being_made, send, temporary_folders, without_children

# multiprocessing.util.get_temp_dir names them so; workers listen in them to hand over shared tensors.
_PREFIX = "pymp-"


def stop_and_find(tree: Callable[[], list[psutil.Process]], pid: int) -> set[Path]:
    """Stop a tree that is about to be ended, and find the folders in which its processes listen.

    A process that goes on could begin to listen after the search and before its end, and a stopped one cannot: each
    epoch of a training may start workers. Where one has just made a folder, those without children go on until it
    listens: whoever starts processes does not.

    Args:
        tree: Looks for the living processes.
        pid: Of the command, whose environment says where temporary files are.
    """
    begin_s = time.monotonic()
    while True:
        _stop(tree)
        if time.monotonic() - begin_s > NEW_S or not being_made(temporary_folders({pid})):
            return multiprocessing_folders()
        send(without_children({process.pid for process in tree()}), signal.SIGCONT)
        time.sleep(PAUSE_S)


def _stop(tree: Callable[[], list[psutil.Process]]) -> None:
    """Stop all, and those that they have started meanwhile."""
    stopped: set[int] = set()
    while newcomers := {process.pid for process in tree()} - stopped:
        send(newcomers, signal.SIGSTOP)
        stopped |= newcomers


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


def remove(folders: set[Path]) -> None:
    """Remove folders of processes that have been ended; those that removed their own are gone already."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
