"""Drops files from the page cache, so that the next read measures the storage."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def drop(paths: Iterable[Path | str], written: bool = False) -> int:
    """Ask the kernel to drop the cached pages of files; returns the number of files that could be opened.

    Needs no rights beyond reading. The kernel keeps pages that are not yet on the disk, or mapped by somebody.

    Args:
        paths: of the files.
        written: they were written just now: flush them to the disk first.
    """
    dropped = 0
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if written:
                os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            dropped += 1
        finally:
            os.close(fd)
    return dropped
