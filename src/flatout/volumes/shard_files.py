"""The files of sharded zarr: chunks one after the other, then an index of (offset, size) with a CRC32C.

Chunks are written in C order, so that a row of chunks along x, which is what a patch needs, is one stretch of the file.
"""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple
from flatout.volumes.layout import ZSTD, Layout

MISSING = 2**64 - 1
_CRC_BYTES = 4
_packers = threading.local()

Index = npt.NDArray[np.uint64]  # chunks along z, y, x, then (offset, size) in bytes


def chunks_of(layout: Layout, block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Cut a block whose origin is a chunk's into chunks.

    Args:
        layout: of the volume.
        block: voxels; filled up with zeros to whole chunks.

    Returns:
        Contiguous array: chunks along z, y, x, then voxels along z, y, x.
    """
    (cz, cy, cx) = layout.chunk
    counts = [-(-size // edge) for size, edge in zip(block.shape, layout.chunk, strict=True)]
    padding = [(0, n * edge - size) for n, size, edge in zip(counts, block.shape, layout.chunk, strict=True)]
    if any(more for _, more in padding):
        block = np.pad(block, padding)
    nz, ny, nx = counts
    split = block.astype(layout.dtype.newbyteorder("<"), copy=False).reshape(nz, cz, ny, cy, nx, cx)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 1, 3, 5))


def encode_chunk(layout: Layout, chunk: npt.NDArray[Any]) -> bytes:
    """The bytes of a chunk as they lie in the file."""
    if layout.codec == ZSTD:
        packed: bytes = _packer(layout.level).compress(np.ascontiguousarray(chunk).reshape(-1).view(np.uint8))
        return packed
    return chunk.tobytes()


def _packer(level: int) -> Any:
    """The thread's own: one serves one thread."""
    import zstandard

    packers = vars(_packers).setdefault("by_level", {})
    if level not in packers:
        packers[level] = zstandard.ZstdCompressor(level=level)
    return packers[level]


def encode_index(index: Index) -> bytes:
    """The end of a shard file."""
    from google_crc32c import value

    plain = index.astype("<u8").tobytes()
    return plain + int(value(plain)).to_bytes(_CRC_BYTES, "little")


def empty_index(layout: Layout) -> Index:
    """The index of a shard without chunks."""
    return np.full((*layout.chunks_per_shard, 2), MISSING, np.uint64)


def index_bytes(layout: Layout) -> int:
    """Size of the end of a shard file."""
    return math.prod(layout.chunks_per_shard) * 16 + _CRC_BYTES


def decode_index(layout: Layout, end: bytes, size: int, path: Path) -> Index:
    """The index of a shard.

    Args:
        layout: of the volume.
        end: the last :func:`index_bytes` bytes of the file.
        size: of the file, bytes.
        path: of the file, for the message.

    Raises:
        UsageError: the file is cut off or damaged.
    """
    from google_crc32c import value

    plain, crc = end[:-_CRC_BYTES], end[-_CRC_BYTES:]
    if len(end) != index_bytes(layout) or int(value(plain)) != int.from_bytes(crc, "little"):
        raise UsageError(f"{path}: the shard is cut off or damaged ({size:,} bytes): stage its volume again")
    index = np.frombuffer(plain, "<u8").astype(np.uint64).reshape(*layout.chunks_per_shard, 2)
    there = index[index[..., 0] != MISSING]
    room = size - len(end)
    if there.size and (there.max() > room or (there[..., 0] + there[..., 1]).max() > room):
        raise UsageError(f"{path}: the shard's index points behind its end ({size:,} bytes): stage its volume again")
    return index


def regular_index(layout: Layout, filled: Triple) -> Index:
    """The index of an unpacked shard written in C order, whose first ``filled`` chunks along each axis are there."""
    index = empty_index(layout)
    count = math.prod(filled)
    offsets = np.arange(count, dtype=np.uint64).reshape(filled) * np.uint64(layout.chunk_bytes)
    index[: filled[0], : filled[1], : filled[2], 0] = offsets
    index[: filled[0], : filled[1], : filled[2], 1] = np.uint64(layout.chunk_bytes)
    return index
