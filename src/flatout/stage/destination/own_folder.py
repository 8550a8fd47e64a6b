"""Staging's own folder next to a destination: created, recognised, never reached through a link."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from flatout.errors import UsageError
from flatout.stage.destination.safe_paths import STATE_FOLDER, state_folder

DATABASE = "state.sqlite"
PARTIAL = "partial"
_UNFINISHED = re.compile(r"[0-9]+-[0-9]+")  # process and number: only what staging named itself is removed


def open_folder(destination: Path) -> Path:
    """Create the folder if it is missing, and return it.

    Raises:
        UsageError: a link or a file has its name, or that of one of the files in it.
        OSError: it cannot be made.
    """
    folder = state_folder(destination)
    folder.mkdir(exist_ok=True)
    see_plain(folder)
    return folder


def see_plain(folder: Path) -> None:
    """Check that the folder contains no link.

    Raises:
        UsageError: a link or another kind of file is in the place of one of staging's own.
    """
    wanted = {folder: stat.S_ISDIR, folder / PARTIAL: stat.S_ISDIR, folder / "lock": stat.S_ISREG}
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
        wanted[folder / name] = stat.S_ISREG
    for path, is_right in wanted.items():
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue
        if not is_right(mode):
            kind = "folder" if is_right is stat.S_ISDIR else "file"
            raise UsageError(f"{path}: not a plain {kind}, where staging keeps its own: remove it")


def remove_partial(destination: Path) -> int:
    """Remove the leftovers of an interrupted staging; returns the number of files."""
    folder = state_folder(destination) / PARTIAL
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        names = [name for name in os.listdir(at) if _UNFINISHED.fullmatch(name)]
        left = [name for name in names if stat.S_ISREG(os.lstat(name, dir_fd=at).st_mode)]
        for name in left:
            os.unlink(name, dir_fd=at)
    finally:
        os.close(at)
    return len(left)


def adopt_moved(destination: Path, report: Callable[[str], None]) -> None:
    """Take over the folder of a destination that was moved or renamed within its parent folder.

    It is recognised by its inode and at least one of its files: the number of a removed folder is reused.

    Does nothing if the destination already has one, or if no folder next to it is its own.
    """
    place = Path(os.path.realpath(destination))
    own = state_folder(place)
    if own.exists() or own.parent != place.parent:
        return
    for folder in sorted(place.parent.glob(f".*{STATE_FOLDER}")):
        before = _noted(folder)
        if before is None or before[1] != inode(place) or os.path.lexists(before[0]):
            continue
        if not _holds_any(place, folder):
            continue
        os.rename(folder, own)
        report(f"{place} was {before[0]} when it was staged: what is noted of its files is taken over")
        return


def inode(folder: Path) -> str:
    """The inode number of a folder, which identifies it on its disk even after a move."""
    return str(os.stat(folder).st_ino)


def _noted(folder: Path) -> tuple[str, str] | None:
    with contextlib.suppress(UsageError, OSError, sqlite3.Error):
        see_plain(folder)
        with reading(folder / DATABASE) as base:
            about = dict(base.execute("SELECT name, value FROM about WHERE name IN ('destination', 'inode')"))
        return str(about.get("destination", "")), str(about.get("inode", ""))
    return None


def _holds_any(place: Path, folder: Path) -> bool:
    """True if at least one recorded file is present with its recorded size and modification time."""
    with contextlib.suppress(OSError, sqlite3.Error), reading(folder / DATABASE) as base:
        for key, size, mtime_ns in base.execute("SELECT key, size, mtime_ns FROM files"):
            with contextlib.suppress(OSError, TypeError, ValueError):
                found = os.lstat(place / key)
                if (found.st_size, found.st_mtime_ns) == (size, mtime_ns):
                    return True
    return False


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The database opened read-only, even on a read-only disk; creates no file."""
    base = None
    # Without a write-ahead log nobody has the database open: it is complete and needs no lock.
    ways = ("immutable=0", "immutable=1") if path.with_name(f"{path.name}-wal").exists() else ("immutable=1",)
    for options in ways:
        base = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&{options}", uri=True, check_same_thread=False)
        try:
            base.execute("SELECT 1 FROM about LIMIT 1")
            break
        except sqlite3.OperationalError:
            base.close()
            if options == "immutable=1":
                raise
    assert base is not None
    try:
        yield base
    finally:
        base.close()
