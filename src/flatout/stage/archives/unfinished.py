"""Files of an archive that is still being read; they are renamed into place once the whole archive is verified."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from flatout.stage.destination.large_files import write_all
from flatout.stage.sources.failures import Failure

FOLDER = "unpacking"
_SCHEMA = "CREATE TABLE files (name TEXT PRIMARY KEY, number INTEGER, size INTEGER, checksum TEXT) WITHOUT ROWID"


class Waiting(NamedTuple):
    """A file without its final name."""

    name: str  # in the archive
    path: Path
    size: int
    checksum: str


class Unfinished:
    """The files of one archive. Their names are on disk, not in memory: archives may hold millions.

    Attributes:
        bytes: written so far.
    """

    def __init__(self, folder: Path, key: str) -> None:
        """Start empty.

        Args:
            folder: staging's own.
            key: of the archive.

        Raises:
            Failure: a link or a file has the folder's name.
        """
        above = folder / FOLDER
        above.mkdir(exist_ok=True)
        if not stat.S_ISDIR(os.lstat(above).st_mode):
            raise Failure("never", f"{above}: no folder: remove it")
        self._folder = above / blake2b(key.encode(), digest_size=16).hexdigest()
        self.remove()
        self._folder.mkdir()
        self._base = sqlite3.connect(self._folder / "names", isolation_level=None, check_same_thread=False)
        self._base.execute("PRAGMA journal_mode=OFF")
        self._base.execute("PRAGMA synchronous=OFF")
        self._base.execute(_SCHEMA)
        self._base.execute("BEGIN")
        self._number = self.bytes = 0

    def add(self, name: str, blocks: Iterable[bytes]) -> bool:
        """Write a file; the last one with a name wins. Returns True if it is the first with its name.

        Raises:
            OSError: it cannot be written; and what ``blocks`` raises.
        """
        self._number += 1
        size = checksum = 0
        fd = os.open(self._path(self._number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            for block in blocks:
                size += len(block)
                checksum = zlib.crc32(block, checksum)
                write_all(fd, block)
                self.bytes += len(block)
        finally:
            os.close(fd)
        try:
            before = self._base.execute("SELECT number FROM files WHERE name=?", (name,)).fetchone()
            row = (name, self._number, size, f"crc32:{checksum:08x}")
            self._base.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise OSError(errno.EIO, str(error), str(self._folder)) from None
        if before is not None:
            self._path(before[0]).unlink()
        return before is None

    def __iter__(self) -> Iterator[Waiting]:
        """Yield all files in order of name."""
        for name, number, size, checksum in self._base.execute("SELECT * FROM files ORDER BY name"):
            yield Waiting(name, self._path(number), size, checksum)

    def close(self) -> None:
        """Remove all files that are left."""
        self._base.close()
        self.remove()

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self._folder / str(number)


def remove_unfinished(folder: Path) -> None:
    """Remove the leftovers of killed stagings; ``folder`` is staging's own."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)  # a link is not followed
