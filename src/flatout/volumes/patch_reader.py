"""Reads patches from sharded zarr: one ``pread`` a row of chunks, and a copy of the voxels wanted.

Reads, not memory maps: of a map that is not in memory the kernel fetches 128 KiB around each fault, 10 to 70 times the
patch; and a file that is cut off, or on a mount that goes away, would end the process by SIGBUS.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple
from flatout.volumes.layout import NONE, Layout
from flatout.volumes.shard_files import MISSING, Index, decode_index, index_bytes, regular_index

OPEN_FILES = 256  # of a volume, at once
_scratch = threading.local()


class _Descriptor:
    """A file descriptor that is closed with its last user."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


@dataclass(frozen=True)
class _Shard:
    file: _Descriptor
    path: Path
    index: Index
    filled: Triple | None  # chunks along each axis, if they lie in C order and unpacked: no look-up then


class ShardedVolume:
    """A volume of :class:`Layout`; may be shared by threads, forked and pickled.

    Attributes:
        bytes_read: bytes asked of the file system since it was opened.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.path, self.layout = folder, layout
        self.bytes_read = 0
        self._open: OrderedDict[Triple, _Shard | None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def shape(self) -> Triple:
        """Voxels along z, y, x."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the voxels."""
        return self.layout.dtype

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Distance of voxels along z, y, x."""
        return self.layout.spacing

    def read(self, z: int, y: int, x: int, dz: int, dy: int, dx: int, fill: int = 0) -> npt.NDArray[Any]:
        """Voxels of the box that begins at (z, y, x); those outside the volume are ``fill``.

        Raises:
            UsageError: a shard is missing, cut off or damaged.
        """
        start, size = (z, y, x), (dz, dy, dx)
        low = [max(at, 0) for at in start]
        high = [min(at + n, limit) for at, n, limit in zip(start, size, self.shape, strict=True)]
        inside = low == list(start) and high == [at + n for at, n in zip(start, size, strict=True)]
        out = np.empty(size, self.dtype) if inside else np.full(size, fill, self.dtype)
        if any(a >= b for a, b in zip(low, high, strict=True)):
            return out
        spans = [range(a // edge, -(-b // edge)) for a, b, edge in zip(low, high, self.layout.shard, strict=True)]
        for place in product(*spans):
            origin = [at * edge for at, edge in zip(place, self.layout.shard, strict=True)]
            first = [max(a, o) for a, o in zip(low, origin, strict=True)]
            last = [min(b, o + edge) for b, o, edge in zip(high, origin, self.layout.shard, strict=True)]
            target = out[tuple(slice(a - s, b - s) for a, b, s in zip(first, last, start, strict=True))]
            box = [(a - o, b - o) for a, b, o in zip(first, last, origin, strict=True)]
            self._read_shard((place[0], place[1], place[2]), box, target)
        return out

    def _read_shard(self, place: Triple, box: list[tuple[int, int]], target: npt.NDArray[Any]) -> None:
        shard = self._shard(place)
        if shard is None:  # every chunk is the fill value
            target[...] = 0
            return
        edges = self.layout.chunk
        first = [a // edge for (a, _), edge in zip(box, edges, strict=True)]
        counts = [-(-b // edge) - f for (_, b), f, edge in zip(box, first, edges, strict=True)]
        bricks = self._bricks(counts)
        if shard.filled is not None:
            self._read_rows(shard, shard.filled, first, counts, bricks)
        else:
            self._read_chunks(shard, first, counts, bricks)
        voxels = bricks.view(self.dtype).reshape(*counts, *edges)
        _copy(voxels, [(a - f * e, b - f * e) for (a, b), f, e in zip(box, first, edges, strict=True)], target)

    def _bricks(self, counts: list[int]) -> npt.NDArray[np.uint8]:
        """Room for chunks: chunks along z, y, x, bytes; the thread's own, since new memory costs a fault a page."""
        wanted = counts[0] * counts[1] * counts[2] * self.layout.chunk_bytes
        room = getattr(_scratch, "room", None)
        if room is None or room.size < wanted:
            room = _scratch.room = np.empty(wanted, np.uint8)
        return room[:wanted].reshape(*counts, self.layout.chunk_bytes)

    def _read_rows(
        self, shard: _Shard, filled: Triple, first: list[int], counts: list[int], bricks: npt.NDArray[np.uint8]
    ) -> None:
        size = self.layout.chunk_bytes
        (z0, y0, x0), (nz, ny, nx) = first, counts
        _, fy, fx = filled
        if nx == fx:  # rows along x follow each other: one stretch for all of them
            stretches = [(bricks[z], ((z0 + z) * fy + y0) * fx * size) for z in range(nz)]
        else:
            rows = product(range(nz), range(ny))
            stretches = [(bricks[z, y], (((z0 + z) * fy + y0 + y) * fx + x0) * size) for z, y in rows]
        _read_ahead(shard.file.number, [(offset, room.nbytes) for room, offset in stretches])
        for room, offset in stretches:
            self._pread(shard, room, offset)

    def _pread(self, shard: _Shard, room: npt.NDArray[np.uint8], offset: int) -> None:
        got = os.preadv(shard.file.number, [room.data], offset)
        while 0 < got < room.nbytes:
            more = os.preadv(shard.file.number, [room.reshape(-1)[got:].data], offset + got)
            got = got + more if more else 0
        if got != room.nbytes:
            raise UsageError(f"{shard.path}: it ends before byte {offset + room.nbytes:,}: stage its volume again")
        self.bytes_read += got

    def _read_chunks(self, shard: _Shard, first: list[int], counts: list[int], bricks: npt.NDArray[np.uint8]) -> None:
        (z0, y0, x0), (nz, ny, nx) = first, counts
        places = list(product(range(nz), range(ny)))
        rows = [shard.index[z0 + z, y0 + y, x0 : x0 + nx].tolist() for z, y in places]
        _read_ahead(shard.file.number, [stretch for row in rows if (stretch := _stretch(row))])
        for (z, y), row in zip(places, rows, strict=True):
            self._read_row(shard, row, bricks[z, y])

    def _read_row(self, shard: _Shard, row: list[list[int]], room: npt.NDArray[np.uint8]) -> None:
        """Chunks along x: in one read if they follow each other in the file."""
        stretch = _stretch(row)
        start, length = stretch or (0, 0)
        packed = np.empty(length, np.uint8) if stretch else None
        if packed is not None:
            self._pread(shard, packed, start)
        for at, (offset, size) in enumerate(row):
            if offset == MISSING:
                room[at] = 0
                continue
            if packed is not None:
                part = packed[offset - start : offset - start + size]
            else:
                part = np.empty(size, np.uint8)
                self._pread(shard, part, offset)
            if self.layout.codec == NONE:
                if size != room.shape[1]:
                    raise UsageError(f"{shard.path}: a chunk has {size:,} bytes: stage its volume again")
                room[at] = part
            else:
                _unpack(part, room[at], shard.path)

    def _shard(self, place: Triple) -> _Shard | None:
        with self._lock:
            if place in self._open:
                self._open.move_to_end(place)
                return self._open[place]
            opened = self._open[place] = self._open_shard(place)
            while len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)  # its file is closed with its last user
            return opened

    def _open_shard(self, place: Triple) -> _Shard | None:
        path = self.layout.shard_path(self.path, place)
        try:
            file = _Descriptor(path)
        except FileNotFoundError:
            if self.layout.every_shard:
                raise UsageError(f"{path}: the shard is missing: stage its volume again") from None
            return None
        size = os.fstat(file.number).st_size
        length = index_bytes(self.layout)
        end = os.pread(file.number, length, max(size - length, 0))
        index = decode_index(self.layout, end, size, path)
        filled = self.layout.filled(place)
        regular = self.layout.codec == NONE and np.array_equal(index, regular_index(self.layout, filled))
        return _Shard(file, path, index, filled if regular else None)

    def __getstate__(self) -> dict[str, Any]:
        """Path and layout: files are opened anew."""
        return {"folder": self.path, "layout": self.layout}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _stretch(row: list[list[int]]) -> tuple[int, int] | None:
    """Offset and length of chunks that follow each other in the file; None: they do not, or there are none."""
    there = [(offset, size) for offset, size in row if offset != MISSING]
    if not there or any(a + n != b for (a, n), (b, _) in pairwise(there)):
        return None
    return there[0][0], there[-1][0] + there[-1][1] - there[0][0]


def _read_ahead(file: int, stretches: list[tuple[int, int]]) -> None:
    """Ask the kernel for all stretches (offset, length) at once if the first one is not in memory.

    One after the other, each read would wait for the disk by itself.
    """
    if len(stretches) < 2 or not hasattr(os, "RWF_NOWAIT"):
        return
    offset, length = stretches[0]
    try:
        if os.preadv(file, [bytearray(1)], offset + length - 1, os.RWF_NOWAIT):
            return
    except BlockingIOError:
        pass
    except OSError:  # a file system that cannot say
        return
    for offset, length in stretches:
        os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)


def _copy(bricks: npt.NDArray[Any], box: list[tuple[int, int]], target: npt.NDArray[Any]) -> None:
    """Copy a box out of chunks (chunks along z, y, x, then voxels); it counts from the first chunk's first voxel."""
    for z, y, x in product(*(_pieces(a, b, edge) for (a, b), edge in zip(box, bricks.shape[3:], strict=True))):
        part = bricks[z.chunks, y.chunks, x.chunks, z.within, y.within, x.within]
        to = target[z.out, y.out, x.out]
        nz, ny, nx, dz, dy, dx = part.shape
        row = np.dtype((np.void, dx * part.itemsize))  # copied as one item: a third less time than voxel by voxel
        to.reshape(nz, dz, ny, dy, nx, dx, copy=False).view(row)[...] = part.transpose(0, 3, 1, 4, 2, 5).view(row)


@dataclass(frozen=True)
class _Piece:
    """A stretch along one axis that covers the same part of each of its chunks."""

    chunks: slice
    within: slice
    out: slice


def _pieces(start: int, stop: int, edge: int) -> list[_Piece]:
    """Cut [start, stop) into the end of the first chunk, whole chunks, and the beginning of the last."""
    pieces, at = [], start
    while at < stop:
        chunk, offset = divmod(at, edge)
        count = 1 if offset else max((stop - at) // edge, 1)
        length = min(edge - offset, stop - at)
        end = at + (length if count == 1 else count * edge)
        pieces.append(
            _Piece(slice(chunk, chunk + count), slice(offset, offset + length), slice(at - start, end - start))
        )
        at = end
    return pieces


def _unpack(packed: npt.NDArray[np.uint8], room: npt.NDArray[np.uint8], path: Path) -> None:
    import zstandard

    # The thread's own: one serves one thread, and to make it takes as long as to unpack a chunk.
    unpacker = getattr(_scratch, "unpacker", None)
    if unpacker is None:
        unpacker = _scratch.unpacker = zstandard.ZstdDecompressor()
    try:
        # Other writers leave the size out of the frame.
        voxels = unpacker.decompress(packed.data, max_output_size=room.nbytes)
        if len(voxels) != room.nbytes:
            raise zstandard.ZstdError(f"{len(voxels):,} of {room.nbytes:,} bytes")
    except zstandard.ZstdError as error:
        raise UsageError(f"{path}: a chunk cannot be unpacked ({error}): stage its volume again") from None
    room[:] = np.frombuffer(voxels, np.uint8)
