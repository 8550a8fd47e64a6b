"""Checksums of files: of a whole file, or combined from those of its parts."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

PART_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 20


class Running(Protocol):
    """A checksum that is updated piece by piece."""

    def update(self, data: Any, /) -> None:
        """Add bytes."""

    def digest(self) -> bytes:
        """The checksum of all bytes so far."""


class _Crc:
    def __init__(self, function: Callable[..., int], width: int) -> None:
        self._function, self._width, self._value = function, width, 0

    def update(self, data: Any, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._width, "big")


def running(kind: str) -> Running:
    """A checksum of a kind: ``md5``, ``sha1``, ``sha256``, ``crc32``, ``crc32c``, ``crc64nvme``.

    Raises:
        ValueError: unknown kind.
    """
    if kind in ("md5", "sha1", "sha256"):
        return hashlib.new(kind, usedforsecurity=False)
    if kind == "crc32":
        return _Crc(zlib.crc32, 4)
    if kind in ("crc32c", "crc64nvme"):
        from awscrt import checksums

        return _Crc(getattr(checksums, kind), 8 if kind == "crc64nvme" else 4)
    raise ValueError(f"unknown checksum {kind!r}")


class _OfParts:
    """The checksums of parts that come one after another."""

    def __init__(self, kind: str, part_bytes: int) -> None:
        if part_bytes < 1:
            raise ValueError(f"parts of {part_bytes} bytes")
        self._kind, self._part_bytes = kind, part_bytes
        self._ended: list[bytes] = []
        self._part, self._left = running(kind), part_bytes

    def update(self, data: Any, /) -> None:
        view = memoryview(data)
        while len(view) >= self._left:
            self._part.update(view[: self._left])
            self._ended.append(self._part.digest())
            view = view[self._left :]
            self._part, self._left = running(self._kind), self._part_bytes
        if view:
            self._part.update(view)
            self._left -= len(view)

    def digest(self) -> bytes:
        last = [self._part.digest()] if self._left < self._part_bytes else []
        return b"".join([*self._ended, *last])


class Checksum(NamedTuple):
    """Combines the checksums of a file's parts, computed in any order, into one of the file.

    Written as ``kind:hex``, or as ``kind-of-parts-N:hex`` if it is the checksum of the parts' checksums.
    """

    kind: str
    part_bytes: int = PART_BYTES
    whole: bool = False  # the parts' CRCs are combined to that of the file

    @property
    def name(self) -> str:
        """The part before the colon."""
        return self.kind if self.whole else f"{self.kind}-of-parts-{self.part_bytes}"

    @property
    def range_bytes(self) -> int:
        """Bytes to read at once: several parts if they are small."""
        return self.part_bytes if self.whole else self.part_bytes * max(PART_BYTES // self.part_bytes, 1)

    def part(self) -> Running:
        """The checksum of what is read at once: those of its parts, one after another."""
        return running(self.kind) if self.whole else _OfParts(self.kind, self.part_bytes)

    def of(self, parts: list[bytes], size: int) -> str:
        """The checksum of a file of ``size`` bytes as it is recorded, from its parts' checksums in order."""
        return f"{self.name}:{(self._combined(parts, size) if self.whole else self._of_all(parts)).hex()}"

    def _of_all(self, parts: list[bytes]) -> bytes:
        every = running(self.kind)
        every.update(b"".join(parts))
        return every.digest()

    def _combined(self, parts: list[bytes], size: int) -> bytes:
        from awscrt import checksums

        combine = getattr(checksums, f"combine_{self.kind}")
        value = 0
        for number, part in enumerate(parts):
            value = combine(value, int.from_bytes(part, "big"), min(self.part_bytes, size - number * self.part_bytes))
        return int(value).to_bytes(len(parts[0]) if parts else 4, "big")


CRC_OF_PARTS = Checksum("crc32")


def checksum_of(path: Path | str, like: str) -> str:
    """Checksum of a file, of the same kind as ``like``; empty for an unknown kind."""
    name = like.partition(":")[0]
    kind, _, part_bytes = name.partition("-of-parts-")
    try:
        if part_bytes:
            how: Checksum | None = Checksum(kind, int(part_bytes))
            found: Running = _OfParts(kind, int(part_bytes))
        else:
            how, found = None, running(kind)
    except ValueError:
        return ""
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            found.update(block)
    return how.of([found.digest()], 0) if how else f"{kind}:{found.digest().hex()}"
