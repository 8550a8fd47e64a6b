"""Maps keys, which may hold anything, to paths that cannot leave the destination."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from flatout.errors import UsageError

LONGEST_NAME = 255  # bytes, on every common Linux file system
LONGEST_PATH = 4096
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NO_TEXT = re.compile(r"[\ud800-\udfff]")
_NO_PART = frozenset(("", ".", ".."))


def refusal(key: str, folder_bytes: int = 0) -> str | None:
    """The reason why a key cannot be a file below the destination; None if it can.

    Args:
        key: the object's key below its source's root.
        folder_bytes: length of the destination's own path.
    """
    if not key:
        return "an empty name"
    if key.startswith("/"):
        return "an absolute path"
    if _CONTROL.search(key):
        return "control characters in the name"
    if _NO_TEXT.search(key):
        return "a name that is no valid text"
    parts = key.split("/")
    if not _NO_PART.isdisjoint(parts):
        return "an empty, '.' or '..' part in the name"
    if parts[0] == STATE_FOLDER:  # its path inside the destination
        return f"a name in {STATE_FOLDER}, where staging keeps its own files"
    size = len(key.encode())
    if size > LONGEST_NAME:
        longest = max(len(part.encode()) for part in parts)
        if longest > LONGEST_NAME:
            return f"a part of {longest} bytes, where a file name has at most {LONGEST_NAME}"
    if size + folder_bytes + 1 >= LONGEST_PATH:
        return f"a path of more than {LONGEST_PATH} bytes"
    return None


STATE_FOLDER = ".flatout-stage"


def state_folder(destination: Path) -> Path:
    """The folder for staging's own files: next to the destination, on the same disk.

    A loader that takes each folder for a class must not find an extra one. Only if nothing can be written next to the
    destination, or the destination is a mount point, they are inside it. A destination that is a link is the folder it
    leads to; existing files of staging stay where they are, whatever is writable now.
    """
    folder = Path(os.path.realpath(destination))
    inside, beside = folder / STATE_FOLDER, folder.parent / beside_name(folder.name)
    for found in (inside, beside):
        if os.path.lexists(found):
            return found
    try:
        same_disk = os.stat(folder.parent).st_dev == os.stat(folder).st_dev
    except FileNotFoundError:  # a destination that does not exist yet
        same_disk = True
    if not same_disk or folder.parent == folder or not os.access(folder.parent, os.W_OK | os.X_OK):
        return inside
    return beside


def beside_name(name: str) -> str:
    """Name of the folder for staging's own files next to a destination of this name."""
    whole = f".{name}{STATE_FOLDER}"
    if len(os.fsencode(whole)) <= LONGEST_NAME:
        return whole
    return f".{hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()}{STATE_FOLDER}"


def refuse_file(destination: Path) -> None:
    """Check that no file has the destination's name.

    Raises:
        UsageError: one has.
    """
    if destination.exists() and not destination.is_dir():
        raise UsageError(f"{destination}: is a file, not a folder: give a folder as DEST")
