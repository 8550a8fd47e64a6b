"""Iterates the files of a tar or zip archive; every defect of an archive is an error."""

from __future__ import annotations

import contextlib
import functools
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from flatout.stage.archives.stream import READ_BYTES, ForwardFile, HashedFile, decompressed
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.object_files import ObjectFile
from flatout.terminal_text import one_line


class Member(NamedTuple):
    """A regular file of an archive."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


class Members:
    """Iterated once, in the order of the archive; each is read before the next.

    Attributes:
        verified: what the bytes were compared with, once all were read; empty: nothing.
    """

    def __init__(self, obj: ObjectInfo, source: Source, raw: ObjectFile, refused: Callable[[str, str], None]) -> None:
        """Read nothing yet.

        Args:
            obj: the archive.
            source: where it is.
            raw: its bytes.
            refused: called with each link or device, which are left out.
        """
        self._obj, self._source, self._raw, self._refused = obj, source, raw, refused
        self.verified = ""

    def __iter__(self) -> Iterator[Member]:
        """The members.

        Raises:
            Failure: the archive cannot be read, is damaged, or differs from the store's.
        """
        key = self._obj.key
        members = self._in_zip() if key.lower().endswith(".zip") else self._in_tar()
        while True:
            with reading(key):
                member = next(members, None)
            if member is None:
                return
            yield member

    def _in_zip(self) -> Iterator[Member]:
        with io.BufferedReader(self._raw, READ_BYTES) as file, zipfile.ZipFile(file) as archive:
            for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
                kind = stat.S_IFMT(info.external_attr >> 16)
                if info.is_dir():
                    continue
                if info.flag_bits & 1:
                    raise Failure("never", f"{self._obj.key}: encrypted archives are not unpacked")
                if kind and kind != stat.S_IFREG:
                    self._leave_out(info.filename)
                    continue
                yield Member(info.filename, info.file_size, functools.partial(archive.open, info))
        self.verified = "crc32 in zip"

    def _in_tar(self) -> Iterator[Member]:
        hashed = HashedFile(self._raw, self._obj, self._source)
        with io.BufferedReader(hashed, READ_BYTES) as compressed:
            file, check = decompressed(compressed)
            forward: Any = ForwardFile(file)  # the part of the file interface that tarfile needs
            with file, tarfile.open(fileobj=forward, mode="r:", encoding="utf-8") as tar:
                while (member := tar.next()) is not None:
                    tar.members = []  # type: ignore[attr-defined]  # pyright: ignore  # else all stay in memory
                    if member.isreg():
                        opened = functools.partial(tar.extractfile, member)
                        yield Member(member.name, member.size, opened)  # type: ignore[arg-type]  # not None: a file
                    elif not member.isdir():
                        self._leave_out(member.name)
                _see_end(forward, tar.offset)
                self.verified = hashed.check() or check

    def _leave_out(self, name: str) -> None:
        self._refused(f"{self._obj.key}!{name[:80]!r}", "a link or a device")


@contextlib.contextmanager
def reading(key: str) -> Iterator[None]:
    """Turn any exception that a library raises on damaged bytes into a Failure that names the archive."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        why = one_line(str(error))[:200] or type(error).__name__
        raise Failure("never", f"{key}: no archive that can be read: {why}") from None


def _see_end(file: ForwardFile, at: int) -> None:
    """Check that a tar archive ends with two blocks of zeros: ``tarfile`` mistakes a damaged header for the end.

    Reading to the end makes a compressed file verify its own checksum.
    """
    if file.last.strip(b"\0"):
        raise tarfile.ReadError(f"damaged header at byte {at:,}")
    if len(file.last) < tarfile.BLOCKSIZE or len(file.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("the two blocks of zeros are missing that end a tar archive: it was cut off")
    while True:
        if file.last.strip(b"\0"):
            raise tarfile.ReadError("more follows its end: a damaged archive, or several in one file")
        if not file.read(READ_BYTES):
            return
