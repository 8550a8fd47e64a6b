"""A folder as a source, local or on any mounted file system."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.sources.base import Attributes, ObjectInfo, Source
from flatout.stage.sources.failures import Failure, failure_of
from flatout.stage.sources.folder_walk import FolderWalk


class FolderSource(Source):
    """A folder: local, or any mounted file system."""

    unverified = "size and time"  # both are the same before and after the bytes are read

    def __init__(self, root: Path) -> None:
        """Take the folder.

        Raises:
            UsageError: the folder does not exist or cannot be read.
        """
        self.root = root.absolute()
        self.address = str(self.root)
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{root}: is a file, not a folder: give the folder that holds the data")
        if not self.root.is_dir():
            raise UsageError(f"{root}: no such folder")
        if not os.access(self.root, os.R_OK | os.X_OK):
            raise UsageError(f"{root}: not readable")

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all files below ``prefix``; links are followed. Other items are in ``skipped``."""
        for key, found in self._walk().files(prefix):
            yield ObjectInfo(key, found.st_size, f"{found.st_size}:{found.st_mtime_ns}")

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted; links are followed."""
        return self._walk().folders(prefix)

    def _walk(self) -> FolderWalk:
        return FolderWalk(str(self.root), self.skipped, self.stopped)

    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """Yield the bytes of a file, or of a range of it; fails if the file changes before the last piece."""
        left = obj.size - start if length is None else length
        try:
            with open(self.root / obj.key, "rb", buffering=0) as file:
                _see_unchanged(file.fileno(), obj)
                while left > 0:
                    have, wanted = 0, min(left, len(buffer))
                    while have < wanted and (got := os.preadv(file.fileno(), [buffer[have:wanted]], start + have)):
                        have += got
                    if have == left:
                        _see_unchanged(file.fileno(), obj)
                    yield buffer[:have]
                    if have < wanted:
                        return  # it became shorter, which the caller detects
                    start, left = start + have, left - have
        except OSError as error:
            raise failure_of(error, str(self.root / obj.key)) from error

    def attributes(self, obj: ObjectInfo) -> Attributes | None:
        """Modification time and permissions; the owner may always read the copy."""
        try:
            found = os.stat(self.root / obj.key)
        except OSError as error:
            raise failure_of(error, str(self.root / obj.key)) from error
        return Attributes(found.st_mtime_ns, found.st_mode & 0o777 | 0o400)

    def look_again(self, obj: ObjectInfo) -> ObjectInfo:
        """The file's current state."""
        try:
            found = os.stat(self.root / obj.key)
        except OSError as error:
            raise failure_of(error, str(self.root / obj.key)) from error
        return ObjectInfo(obj.key, found.st_size, _version(found))


def _version(found: os.stat_result) -> str:
    return f"{found.st_size}:{found.st_mtime_ns}"


def _see_unchanged(fd: int, obj: ObjectInfo) -> None:
    """Raise Failure if a file is no longer as listed: bytes read from it may mix two versions."""
    if obj.version != _version(os.fstat(fd)):
        raise Failure("changed", f"{obj.key}: changed at the source while it was copied")
