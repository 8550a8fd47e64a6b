"""An object of an origin that gives no ranges, as a file that is read from its beginning to its end."""

from __future__ import annotations

from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.buffers import BUFFER_BYTES
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.object_file import ObjectFile


class StreamedFile(ObjectFile):
    """Reads an object once; what lies behind the position cannot be read again. Not for two threads."""

    def __init__(self, origin: Source, entry: ObjectInfo) -> None:
        """Nothing is read yet."""
        super().__init__(origin, entry)
        self._pieces = origin.stream(entry, memoryview(bytearray(BUFFER_BYTES)))
        self._piece = memoryview(b"")
        self._begins = 0  # of the piece, in the object

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        """Fill the buffer up to the end of a piece; raises Failure for what was passed already."""
        if self._at < self._begins:
            raise Failure("never", f"{self._entry.key}: its server gives no ranges, which reading it needs")
        while self._at >= self._begins + len(self._piece):
            self._begins += len(self._piece)
            piece = next(self._pieces, None)
            if piece is None:
                self._piece = memoryview(b"")
                return 0
            self._piece = piece
        inside = self._at - self._begins
        data = self._piece[inside : inside + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        """End what is read."""
        self._pieces.close()
        super().close()
