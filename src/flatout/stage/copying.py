"""Copy one object to its file: never a partial file under the final name, and never one that was not checked."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flatout.stage.failures import Failure
from flatout.stage.names import state_folder
from flatout.stage.origins import Entry, Origin
from flatout.stage.state import Complete

PART_BYTES = 16 << 20
PARTS_AT_ONCE = 8  # of one large object
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_numbers = itertools.count()


def temporary_folder(destination: Path) -> Path:
    """Where files lie until they are whole: on the file system of the destination, so that a rename moves them."""
    return state_folder(destination) / "partial"


class Target:
    """The destination's folders; each is made once."""

    def __init__(self, destination: Path) -> None:
        """Take the destination, which exists."""
        self.destination = destination
        self.partial = temporary_folder(destination)
        self.partial.mkdir(parents=True, exist_ok=True)
        self._made: set[str] = set()

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.destination / key

    def make_folder(self, key: str) -> None:
        """Make the folder that a key's file lies in.

        Raises:
            Failure: a file of that name is in the way, or a link leads out of the destination.
        """
        folder = key.rpartition("/")[0]
        if folder in self._made or not folder:
            return
        path = self.destination
        for part in folder.split("/"):
            path = path / part
            try:
                path.mkdir()
            except FileExistsError:
                if path.is_symlink() or not path.is_dir():
                    raise Failure("never", f"{key}: {path} is no folder: another object has that name") from None
        self._made.add(folder)


def copy(entry: Entry, origin: Origin, target: Target) -> Complete:
    """Copy an object: read, check, write under a temporary name, rename.

    The check: the size that was listed; the MD5 that the store gives as ETag of an object stored in one piece.
    Larger objects are read in ranges of the version listed, so that no two versions mix.

    Raises:
        Failure: the object could not be read, or is not what was listed.
        OSError: the destination cannot be written.
    """
    temporary = target.partial / f"{os.getpid()}-{next(_numbers)}"
    digest = _expected_md5(entry)
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            checksum = 0
            if entry.size <= PART_BYTES:
                parts: Any = [origin.read(entry)]
            else:
                # Space is taken at once: a disk that is too small shows before the bytes are fetched.
                os.posix_fallocate(fd, 0, entry.size)
                parts = _parts(entry, origin)
            received = 0
            for part in parts:
                view = memoryview(part)
                received += len(view)
                checksum = zlib.crc32(view, checksum)
                if digest is not None:
                    digest[1].update(view)
                while view:
                    view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
        if received != entry.size:
            raise Failure("changed", f"{entry.key}: {received} bytes came where {entry.size} were listed")
        if digest is not None and digest[1].hexdigest() != digest[0]:
            raise Failure("again", f"{entry.key}: the bytes do not match the store's checksum")
        target.make_folder(entry.key)
        path = target.path(entry.key)
        try:
            os.replace(temporary, path)
        except IsADirectoryError:
            raise Failure("never", f"{entry.key}: a folder of that name is in the way") from None
        return Complete(entry.key, entry.size, entry.version, f"crc32:{checksum:08x}", os.stat(path).st_mtime_ns)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _parts(entry: Entry, origin: Origin) -> Iterator[Any]:
    """The parts of a large object in order, several of them on their way at once."""
    starts = iter(range(0, entry.size, PART_BYTES))
    with ThreadPoolExecutor(PARTS_AT_ONCE, "flatout-parts") as pool:
        coming = deque(
            pool.submit(origin.read, entry, start, min(PART_BYTES, entry.size - start))
            for start in itertools.islice(starts, PARTS_AT_ONCE)
        )
        try:
            while coming:
                part = coming.popleft().result()
                if (start := next(starts, None)) is not None:
                    coming.append(pool.submit(origin.read, entry, start, min(PART_BYTES, entry.size - start)))
                yield part
        finally:
            for waiting in coming:
                waiting.cancel()


def _expected_md5(entry: Entry) -> tuple[str, Any] | None:
    """The MD5 in an ETag and a fresh digest; None where the ETag is none (several parts, encryption)."""
    found = _MD5.fullmatch(entry.version)
    return (found[1], hashlib.md5(usedforsecurity=False)) if found else None


def checksum_of(path: Path) -> str:
    """Checksum of a file as :class:`Complete` holds it."""
    checksum = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return f"crc32:{checksum:08x}"


def remove_partial(destination: Path) -> int:
    """Remove what an interrupted staging left; gives the number of files."""
    left = list(temporary_folder(destination).glob("*"))
    for path in left:
        path.unlink()
    return len(left)
