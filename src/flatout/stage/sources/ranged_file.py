"""An object of an origin as a file that can be read and sought, some blocks read ahead."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.object_file import ObjectFile
from flatout.stage.sources.retries import read_patiently

BLOCK_BYTES = 4 << 20
AHEAD = 4  # blocks


class RangedFile(ObjectFile):
    """Reads ranges of the version that was listed; raises Failure where they cannot be read. Not for two threads."""

    def __init__(self, origin: Source, entry: ObjectInfo, block_bytes: int = BLOCK_BYTES) -> None:
        """Nothing is read yet."""
        super().__init__(origin, entry)
        self._block = block_bytes
        self._pool = ThreadPoolExecutor(AHEAD, "flatout-ranges")
        self._blocks: dict[int, Future[bytes]] = {}

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        """Fill the buffer up to the end of a block."""
        if self._at >= self._entry.size:
            return 0
        number, inside = divmod(self._at, self._block)
        data = self._get(number)[inside : inside + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _get(self, number: int) -> bytes:
        wanted = range(number, min(number + AHEAD, -(-self._entry.size // self._block)))
        for block in [block for block in self._blocks if block not in wanted]:
            self._blocks.pop(block).cancel()
        for block in wanted:
            if block not in self._blocks:
                start = block * self._block
                length = min(self._block, self._entry.size - start)
                self._blocks[block] = self._pool.submit(read_patiently, self._origin, self._entry, start, length)
        return self._blocks[number].result()

    def close(self) -> None:
        """End what is read ahead."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()
