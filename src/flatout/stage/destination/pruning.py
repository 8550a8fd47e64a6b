"""Removes files that the source no longer has, if staging wrote them and they are unchanged."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flatout.stage.checksums import checksum_of
from flatout.stage.destination.safe_paths import refusal
from flatout.stage.destination.state import Complete, State, identity, identity_of
from flatout.stage.progress import MAX_EXAMPLES


@dataclass
class Gone:
    """Staged files that the source no longer has.

    Attributes:
        files: number of files staged earlier and no longer listed.
        names: of the first of them.
        removed: how many were removed.
        changed: number kept because they differ from what staging wrote.
        yours: number kept because staging did not write them.
        kept_because: reason why nothing was removed although pruning was requested; empty: no such reason.
    """

    files: int = 0
    names: list[str] = field(default_factory=list)
    removed: int = 0
    changed: int = 0
    yours: int = 0
    kept_because: str = ""


def find_gone(state: State, listing: int, is_meant: Callable[[Complete], bool]) -> Gone:
    """Count the files that a listing covers and did not see."""
    gone = Gone()
    for done in state.all(unseen_since=listing):
        if is_meant(done):
            gone.files += 1
            if len(gone.names) < MAX_EXAMPLES:
                gone.names.append(done.key)
    return gone


def prune(
    gone: Gone, destination: Path, state: State, listing: int, is_meant: Callable[[Complete], bool], most: bool
) -> None:
    """Remove files that are gone, and then the empty folders that staging made.

    Args:
        gone: as found; updated with what was done.
        destination: the folder.
        state: of it; what was removed is forgotten.
        listing: number of the listing, which was complete.
        is_meant: returns True if that listing covers a file.
        most: remove even more than half of the files.
    """
    total = state.totals()[0]
    if 2 * gone.files > total and not most:
        gone.kept_because = (
            f"that would remove {gone.files:,} of the {total:,} files that were staged, which is more than half: "
            "--prune-most removes them"
        )
        return
    for done in state.all(unseen_since=listing):
        if not is_meant(done):
            continue
        was_there = os.path.lexists(destination / done.key)
        if done.adopted and was_there:
            gone.yours += 1
            continue
        if not remove(destination, done):
            gone.changed += 1
            continue
        state.remove(done.key)
        gone.removed += 1
        if was_there:  # a folder that was empty before is no longer staging's
            _remove_folders(destination, done.key, state)


def remove(destination: Path, done: Complete) -> bool:
    """Remove a file if it is what staging wrote; returns False and keeps it otherwise. Follows no link."""
    if refusal(done.key) is not None:  # a state that was tampered with
        return False
    folder, _, name = done.key.rpartition("/")
    with _opened(destination, folder) as at:
        if at is None:
            return not os.path.lexists(destination / done.key)
        try:
            found = os.lstat(name, dir_fd=at)
        except FileNotFoundError:
            return True
        if not stat.S_ISREG(found.st_mode) or (found.st_size, found.st_mtime_ns) != (done.size, done.mtime_ns):
            return False
        if checksum_of(f"/proc/self/fd/{at}/{name}", done.checksum) != done.checksum:
            return False
        if identity(name, at) != identity_of(found):  # somebody put another file there while the checksum was read
            return False
        os.unlink(name, dir_fd=at)
        return True


def _remove_folders(destination: Path, key: str, state: State) -> None:
    """Remove a key's parent folders, innermost first, while they are empty and were made by staging."""
    folder = key.rpartition("/")[0]
    while folder:
        above, _, name = folder.rpartition("/")
        with _opened(destination, above) as at:
            if at is None or not state.made(folder):
                return
            try:
                os.rmdir(name, dir_fd=at)
            except OSError:  # not empty, or not there
                return
        state.forget_folder(folder)
        folder = above


@contextlib.contextmanager
def _opened(destination: Path, folder: str) -> Iterator[int | None]:
    """A folder below the destination, opened without following links; None if that is impossible."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    at: int | None = os.open(destination, flags)
    try:
        for part in folder.split("/") if folder else ():
            assert at is not None
            above, at = at, None
            try:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                    at = _below(above, part, flags)
            finally:
                os.close(above)
            if at is None:
                break
        yield at
    finally:
        if at is not None:
            os.close(at)


def _below(at: int, part: str, flags: int) -> int | None:
    try:
        return os.open(part, flags | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):  # a link
            return None
        raise
