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
# What a compressed file begins with; how it is opened; the check of its own that reading it to the end makes.
_COMPRESSED: tuple[tuple[bytes, Callable[[IO[bytes]], Any], str], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file), "crc32 in gzip"),
    (b"BZh", bz2.BZ2File, "crc32 in bzip2"),
    (b"\xfd7zXZ\x00", lzma.LZMAFile, "check in xz"),
)


class HashedFile(io.RawIOBase):
    """An object read once, in order, and hashed."""

    def __init__(self, raw: ObjectFile, obj: ObjectInfo, source: Source) -> None:
        """Nothing is read yet but what the store says of it; raises Failure where it has another version by now."""
        self._raw, self._obj = raw, obj
        self._expected = _expected(obj, source)
        self._digest = running(self._expected.kind) if self._expected else None
        self._received = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or a part of it."""
        size = self._raw.readinto(buffer)
        self._received += size
        if self._digest is not None:
            self._digest.update(memoryview(buffer)[:size])
        return size

    def check(self) -> str:
        """Read what is left, and compare; gives what was compared, empty: only the size.

        Raises:
            Failure: it is not what the store has.
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
    is_certain: bool  # else it may be something else than a checksum of the bytes


def _expected(obj: ObjectInfo, source: Source) -> _Expected | None:
    """The checksum that the store gives of an object; None: it gives none of all bytes."""
    facts = same_version(obj, source)
    if facts is not None and not facts.of_parts:
        for kind in KINDS:
            if kind in facts.checksums:
                return _Expected(kind, facts.checksums[kind], True)
    md5 = md5_in(obj)
    return _Expected("md5", md5, facts is None or facts.has_md5) if md5 else None


class ForwardFile:
    """What ``tarfile`` is given to read: a file that only goes forward.

    Attributes:
        last: what was read last.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Take a file that stands at its beginning."""
        self._file, self._at = file, 0
        self.last = b""

    def read(self, size: int) -> bytes:
        """So many bytes; less at the end alone."""
        self.last = self._file.read(size)
        self._at += len(self.last)
        return self.last

    def tell(self) -> int:
        """The position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go forward; ends at the end of the file."""
        if whence != io.SEEK_SET or offset < self._at:
            raise OSError("would have to be read backwards")
        while self._at < offset and self.read(min(offset - self._at, READ_BYTES)):
            pass
        return self._at


def decompressed(file: io.BufferedReader[Any]) -> tuple[IO[bytes], str]:
    """A file as what it holds, by how it begins; and what check it makes of its own, empty: none."""
    begin = file.peek(8)
    for magic, opened, check in _COMPRESSED:
        if begin.startswith(magic):
            return opened(file), check
    return file, ""
