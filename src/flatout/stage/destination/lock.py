"""A lock that allows one staging at a time to a destination."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.destination.own_folder import open_folder


@contextmanager
def destination_lock(destination: Path, wait: bool, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the destination's lock; it ends with the process, however that ends.

    Args:
        destination: the folder, which exists.
        wait: wait for another staging to end instead of refusing.
        report: called once, if it waits.

    Raises:
        UsageError: another staging is running there and ``wait`` is off, or the lock cannot be created.
    """
    try:
        lock = open_folder(destination) / "lock"
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise UsageError(f"{error.filename or destination}: {error.strerror or error}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            if not wait:
                raise UsageError(
                    f"{destination}: another staging goes on there (process {holder}): wait for it with --wait"
                ) from None
            report(f"waiting for the staging of process {holder} to end")
            fcntl.flock(fd, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):  # on a full disk the waiting process does not learn who holds the lock
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)
