"""Gzip files of which only a part can be read: a job that was killed leaves them cut off, a bad disk damaged."""

from __future__ import annotations

import io
import os
import zlib
from typing import IO

MAGIC = b"\x1f\x8b"
_BLOCK = 1 << 16  # bytes of the packed file
_MOST = 1 << 20  # bytes unpacked at a time
_WITH_HEADER = 31  # of zlib: gzip's header and checksum


class Unpacked(io.BufferedReader):
    """What can be unpacked of a gzip file, from its beginning; ends where it is cut off or damaged.

    Attributes:
        damage: why it ended before its end, once that place was read; empty: it did not.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._members = _Members(file)
        super().__init__(self._members, io.DEFAULT_BUFFER_SIZE)

    @property
    def damage(self) -> str:
        """See the class."""
        return self._members.damage


class _Members(io.RawIOBase):
    """The members of a gzip file, one after the other."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rewind()

    def _rewind(self) -> None:
        self._file.seek(0)
        self.damage = ""
        self._unpacker = zlib.decompressobj(_WITH_HEADER)
        self._packed, self._plain, self._at = b"", b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("the end of a packed file is known when it was read")
        wanted = offset + (self._at if whence == os.SEEK_CUR else 0)
        if wanted < self._at:
            self._rewind()
        while self._at < wanted and self.read(min(wanted - self._at, _BLOCK)):
            pass
        return self._at

    def readinto(self, room: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._plain and not self.damage:
            if not self._packed and not (block := self._file.read(_BLOCK)):
                if not self._unpacker.eof:
                    self.damage = "it is cut off"
                break
            self._packed = self._packed or block
            self._plain = self._unpack()
        size = min(len(room), len(self._plain))
        room[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        self._at += size
        return size

    def _unpack(self) -> bytes:
        """Unpack what was read; of a damaged block as much as comes out before the damage."""
        if self._unpacker.eof:  # another member may follow, or zeros that fill up a tape's block
            self._packed = self._packed.lstrip(b"\0")
            if not self._packed:
                return b""
            self._unpacker = zlib.decompressobj(_WITH_HEADER)
        before, packed = self._unpacker.copy(), self._packed
        try:
            plain = self._unpacker.decompress(packed, _MOST)
            self._packed = self._unpacker.unconsumed_tail or self._unpacker.unused_data
            return plain
        except zlib.error as error:
            self.damage = f"it is damaged ({str(error).rpartition(': ')[2]})"
        whole = b""
        for byte in range(len(packed)):
            try:
                whole += before.decompress(packed[byte : byte + 1])
            except zlib.error:
                break
        return whole
