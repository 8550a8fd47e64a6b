"""Open files that many threads read by position; each process opens its own."""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path


class Descriptors:
    """Opens each file once a process and reads ranges of it."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._open: dict[tuple[int, Path], int] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        """State without descriptors, which another process must not use."""
        return {}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore the state with no file open."""
        self._open = {}
        self._lock = threading.Lock()

    def read(self, path: Path, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset``."""
        return os.pread(self._descriptor(path), size, offset)

    def _descriptor(self, path: Path) -> int:
        with self._lock:
            fd = self._open.get((os.getpid(), path))
            if fd is None:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._open[os.getpid(), path] = fd
                weakref.finalize(self, _close, os.getpid(), fd)
            return fd


def _close(pid: int, fd: int) -> None:
    """Close a descriptor in the process that opened it."""
    if pid == os.getpid():
        os.close(fd)
