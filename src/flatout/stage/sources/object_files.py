"""Objects of a source as files: seekable, with ranges read ahead; or one stream if the server has no ranges."""

from __future__ import annotations

import io
from concurrent.futures import Future, ThreadPoolExecutor

from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.buffers import BUFFER_BYTES
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.retries import read_with_retries

BLOCK_BYTES = 4 << 20
READ_AHEAD = 4  # blocks


class ObjectFile(io.RawIOBase):
    """Position and seeking; a subclass reads. Not thread-safe."""

    def __init__(self, source: Source, obj: ObjectInfo) -> None:
        self._source, self._obj = source, obj
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; nothing is read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._obj.size}[whence]
        self._position = max(base + offset, 0)
        return self._position


class RangedFile(ObjectFile):
    """Reads ranges of the listed version, some blocks ahead; raises Failure if they cannot be read."""

    def __init__(self, source: Source, obj: ObjectInfo, block_bytes: int = BLOCK_BYTES) -> None:
        super().__init__(source, obj)
        self._block_bytes = block_bytes
        self._pool = ThreadPoolExecutor(READ_AHEAD, "flatout-ranges")
        self._blocks: dict[int, Future[bytes]] = {}

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        """Fill the buffer up to the end of a block."""
        if self._position >= self._obj.size:
            return 0
        number, inside = divmod(self._position, self._block_bytes)
        data = self._block(number)[inside : inside + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _block(self, number: int) -> bytes:
        wanted = range(number, min(number + READ_AHEAD, -(-self._obj.size // self._block_bytes)))
        for block in [block for block in self._blocks if block not in wanted]:
            self._blocks.pop(block).cancel()
        for block in wanted:
            if block not in self._blocks:
                start = block * self._block_bytes
                length = min(self._block_bytes, self._obj.size - start)
                self._blocks[block] = self._pool.submit(read_with_retries, self._source, self._obj, start, length)
        return self._blocks[number].result()

    def close(self) -> None:
        """Stop reading ahead."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()


class StreamedFile(ObjectFile):
    """Reads an object once, from its beginning to its end; seeks forward only."""

    def __init__(self, source: Source, obj: ObjectInfo) -> None:
        super().__init__(source, obj)
        self._pieces = source.stream(obj, memoryview(bytearray(BUFFER_BYTES)))
        self._piece = memoryview(b"")
        self._piece_start = 0  # in the object

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        """Fill the buffer up to the end of a piece.

        Raises:
            Failure: the position lies before what was read already.
        """
        if self._position < self._piece_start:
            raise Failure("never", f"{self._obj.key}: reading it needs ranges, which its server does not give")
        while self._position >= self._piece_start + len(self._piece):
            self._piece_start += len(self._piece)
            piece = next(self._pieces, None)
            if piece is None:
                self._piece = memoryview(b"")
                return 0
            self._piece = piece
        inside = self._position - self._piece_start
        data = self._piece[inside : inside + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        """Close the stream."""
        self._pieces.close()
        super().close()
