"""Writes large files from parts read concurrently, bypassing the page cache where the disk is fast."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from flatout.stage.checksums import CRC_OF_PARTS, Checksum
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.retries import with_retries

PARTS_CONCURRENCY = 32  # of all large files of a destination together
BLOCK = 4096  # writes that bypass the page cache are a multiple of it
# A slower disk is left to the page cache, which takes the bytes at once and writes them later.
DIRECT_BYTES_PER_S = 300e6
JUDGED_AFTER_S = 0.5

Stream = Callable[[int, int], Iterator[memoryview]]
BeforeRequest = Callable[[Failure | None], None]


def no_check(failure: Failure | None) -> None:
    """The check that does nothing."""


class LargeFiles:
    """Writes the large files of one destination; several at once share its threads.

    Bypassing the page cache (O_DIRECT), a file of 5 GiB took 3 s of CPU, and 7 to 9 s through it, mostly for the kernel
    to find and clear memory (docs/measurements/stage.md).
    """

    def __init__(self) -> None:
        """Start no thread yet."""
        self._pool = ThreadPoolExecutor(PARTS_CONCURRENCY, "flatout-parts")
        self._direct = hasattr(os, "O_DIRECT") and os.path.exists("/proc/self/fd")
        self._rate = _RateWhileBusy()

    def write(
        self,
        fd: int,
        key: str,
        size: int,
        stream: Stream,
        before_request: BeforeRequest = no_check,
        checksum: Checksum = CRC_OF_PARTS,
    ) -> str:
        """Write all parts, in the size that the checksum needs; returns the checksum.

        Args:
            fd: of the file, open for writing.
            key: names the file in errors.
            size: of the file in bytes.
            stream: ``stream(start, length)`` yields a range in pieces; it is called in other threads.
            before_request: called in them before each part with None, and with each failure that is followed by
                another try; an exception from it ends the file.
            checksum: of the file, computed while it is written.

        Raises:
            Failure: a part could not be read, or is not as long as it should be.
            OSError: it cannot be written.
        """
        with contextlib.ExitStack() as stack:
            direct_fd = self._open_direct(fd)
            if direct_fd is not None:
                stack.callback(os.close, direct_fd)

            def try_part(start: int) -> bytes:
                wanted = min(checksum.range_bytes, size - start)
                at, part = start, checksum.part()
                for piece in stream(start, wanted):
                    part.update(piece)
                    self._put(fd, direct_fd, piece, at)
                    at += len(piece)
                if at - start != wanted:
                    raise Failure("changed", f"{key}: {at - start} bytes came where {wanted} were asked for")
                return part.digest()

            def write_part(start: int) -> bytes:
                before_request(None)
                return with_retries(functools.partial(try_part, start), before_request)

            parts = [self._pool.submit(write_part, start) for start in range(0, size, checksum.range_bytes)]
            try:
                return checksum.of([part.result() for part in parts], size)
            except BaseException:
                for part in parts:
                    part.cancel()
                raise
            finally:
                wait(parts)  # nothing may write to a descriptor that was reused for another file

    def _open_direct(self, fd: int) -> int | None:
        """A second descriptor of the file that bypasses the page cache; None if its file system cannot."""
        if not self._direct:
            return None
        try:
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError:
            self._direct = False
            return None

    def _put(self, fd: int, direct_fd: int | None, piece: memoryview, at: int) -> None:
        if direct_fd is not None and self._direct and len(piece) % BLOCK == 0:
            try:
                with self._rate.counting(len(piece)):
                    write_all(direct_fd, piece, at)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            else:
                self._direct = not self._rate.is_below(DIRECT_BYTES_PER_S)
                return
        write_all(fd, piece, at)


class _RateWhileBusy:
    """Combined bytes/s of several writers, over the time in which at least one was writing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writing, self._since = 0, 0.0
        self._bytes, self._busy_s = 0, 0.0

    @contextlib.contextmanager
    def counting(self, size: int) -> Iterator[None]:
        with self._lock:
            if not self._writing:
                self._since = time.perf_counter()
            self._writing += 1
        done = 0
        try:
            yield
            done = size
        finally:
            with self._lock:
                self._writing -= 1
                self._bytes += done
                now = time.perf_counter()
                self._busy_s, self._since = self._busy_s + now - self._since, now

    def is_below(self, rate: float) -> bool:
        return self._busy_s > JUDGED_AFTER_S and self._bytes < rate * self._busy_s


def write_all(fd: int, piece: Any, at: int | None = None) -> None:
    """Write all of a piece, at a position or at the descriptor's current offset."""
    view = memoryview(piece)
    while view:
        done = os.write(fd, view) if at is None else os.pwrite(fd, view, at)
        view = view[done:]
        at = None if at is None else at + done
