"""The byte stream of an archive: compared with the store's checksum, and decompressed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from typing import IO, Any, NamedTuple

from flatout.stage.checksums import running
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.object_files import ObjectFile
from flatout.stage.sources.store_facts import KINDS
from flatout.stage.verifying import md5_in, same_version

READ_BYTES = 1 << 20
# Magic number of a compressed file; how to open it; what reading it to the end verifies.
_COMPRESSED: tuple[tuple[bytes, Callable[[IO[bytes]], Any], str], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file), "crc32 in gzip"),
    (b"BZh", bz2.BZ2File, "crc32 in bzip2"),
    (b"\xfd7zXZ\x00", lzma.LZMAFile, "check in xz"),
)


class HashedFile(io.RawIOBase):
    """An object read once, in order, and hashed."""

    def __init__(self, raw: ObjectFile, obj: ObjectInfo, source: Source) -> None:
        """Ask the store for a checksum; raises Failure if the object has changed since it was listed."""
        self._raw, self._obj = raw, obj
        self._expected = _expected(obj, source)
        self._digest = running(self._expected.kind) if self._expected else None
        self._received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or part of it."""
        size = self._raw.readinto(buffer)
        self._received += size
        if self._digest is not None:
            self._digest.update(memoryview(buffer)[:size])
        return size

    def check(self) -> str:
        """Read the rest and compare; returns what was compared, empty for the size only.

        Raises:
            Failure: the bytes differ from the store's.
        """
        buffer = bytearray(READ_BYTES)
        while self.readinto(buffer):
            pass
        key, size = self._obj.key, self._obj.size
        if self._received != size:
            raise Failure("changed", f"{key}: {self._received} bytes came where {size} were listed")
        if self._expected is None or self._digest is None:
            return ""
        if self._digest.digest().hex() == self._expected.value:
            return self._expected.kind
        if self._expected.is_certain:
            raise Failure("mismatch", f"{key}: the bytes do not match the store's checksum")
        return ""


class _Expected(NamedTuple):
    kind: str
    value: str  # hex
    is_certain: bool  # else the ETag may not be a checksum of the bytes


def _expected(obj: ObjectInfo, source: Source) -> _Expected | None:
    """The store's checksum of all bytes of an object; None if it has none."""
    facts = same_version(obj, source)
    if facts is not None and not facts.of_parts:
        for kind in KINDS:
            if kind in facts.checksums:
                return _Expected(kind, facts.checksums[kind], True)
    md5 = md5_in(obj)
    return _Expected("md5", md5, facts is None or facts.has_md5) if md5 else None


class ForwardFile:
    """A forward-only file for ``tarfile``.

    Attributes:
        last: the bytes read last.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Wrap a file positioned at its beginning."""
        self._file, self._at = file, 0
        self.last = b""

    def read(self, size: int) -> bytes:
        """Read ``size`` bytes; fewer only at the end."""
        self.last = self._file.read(size)
        self._at += len(self.last)
        return self.last

    def tell(self) -> int:
        """The position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Skip forward, at most to the end of the file."""
        if whence != io.SEEK_SET or offset < self._at:
            raise OSError("would have to be read backwards")
        while self._at < offset and self.read(min(offset - self._at, READ_BYTES)):
            pass
        return self._at


def decompressed(file: io.BufferedReader[Any]) -> tuple[IO[bytes], str]:
    """Decompress a file by its magic number; returns it and its built-in check (empty: none)."""
    begin = file.peek(8)
    for magic, opened, check in _COMPRESSED:
        if begin.startswith(magic):
            return opened(file), check
    return file, ""
