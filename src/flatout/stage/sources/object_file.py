"""An object of an origin as a file: what the ways of reading it have in common."""

from __future__ import annotations

import io

from flatout.stage.sources.base import ObjectInfo, Source


class ObjectFile(io.RawIOBase):
    """Keeps the position; ``readinto`` reads there. Not for two threads."""

    def __init__(self, origin: Source, entry: ObjectInfo) -> None:
        """Nothing is read yet."""
        self._origin, self._entry = origin, entry
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; nothing is read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._entry.size}[whence]
        self._at = max(base + offset, 0)
        return self._at
