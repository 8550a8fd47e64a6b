"""Writes a volume shard by shard in bounded memory, and goes on after a kill at whole shards.

A slab as thick as a chunk fills the same part of every shard that it crosses, since chunks lie in C order: a slab is
read, its part is appended to each shard's file, and it is forgotten. A shard gets its name when all of it is written.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from flatout.errors import DiskFull, UsageError
from flatout.formats.volume_chunks import Triple
from flatout.volumes.layout import NONE, Layout
from flatout.volumes.shard_files import chunks_of, empty_index, encode_chunk, encode_index
from flatout.volumes.slabs import Slabs

JOURNAL = "shards.jsonl"  # a line a shard: its place and the CRC32 of its file
_PARTIAL = ".partial"
_MOST_OPEN = 256  # shards being written at once


def read_journal(folder: Path) -> dict[Triple, int]:
    """CRC32 of the shards that are complete; a last line that a kill cut off is left out."""
    done: dict[Triple, int] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / JOURNAL).read_text().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                found = json.loads(line)
                z, y, x = found["place"]
                done[z, y, x] = int(found["crc"])
    return done


def convert(
    slabs: Slabs, folder: Path, layout: Layout, memory_bytes: int, advance: Callable[[int], None]
) -> dict[Triple, int]:
    """Write the shards of a volume that are not there yet.

    Args:
        slabs: of the source.
        folder: of the array; exists.
        layout: of the array.
        memory_bytes: for slabs; a little more is used.
        advance: called with the number of voxels that were written or found.

    Returns:
        CRC32 of each shard's file.

    Raises:
        UsageError: of the source; DiskFull: there is no room. Whole shards are kept.
    """
    done = read_journal(folder)
    done = {place: crc for place, crc in done.items() if layout.shard_path(folder, place).exists()}
    nz, ny, nx = layout.grid
    band, planes = plan_slabs(slabs, layout, memory_bytes)
    with (folder / JOURNAL).open("a") as journal:
        if journal.tell():
            journal.write("\n")  # behind a line that a kill cut off
        for z, y in product(range(nz), range(0, ny, band)):
            places = [(z, at, x) for at in range(y, min(y + band, ny)) for x in range(nx)]
            missing = [place for place in places if place not in done]
            advance(sum(_voxels(layout, place) for place in places if place in done))
            if not missing:
                continue
            for place, crc in _write_shards(slabs, folder, layout, missing, planes, advance).items():
                done[place] = crc
                journal.write(json.dumps({"place": place, "crc": crc}) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
    return done


def plan_slabs(slabs: Slabs, layout: Layout, memory_bytes: int) -> tuple[int, int]:
    """How a layer of shards is read.

    Returns:
        Rows of shards along y that are written at once, and planes of a slab.
    """
    source, (_, height, width) = slabs.source, layout.shape
    cost = slabs.working_bytes + 2 * layout.dtype.itemsize
    per_row = layout.chunk[0] * min(layout.shard[1], height) * width * cost
    band = max(min(memory_bytes // max(per_row, 1), layout.grid[1], _MOST_OPEN // layout.grid[2]), 1)
    # A source in chunks is read a chunk's depth at a time, as far as memory allows.
    per_chunk = layout.chunk[0] * min(band * layout.shard[1], height) * width * cost
    most = max(int(memory_bytes // max(per_chunk, 1)), 1)
    wanted = -(-source.step // layout.chunk[0])
    return band, layout.chunk[0] * min(max(wanted, 1), most, layout.chunks_per_shard[0])


def _voxels(layout: Layout, place: Triple) -> int:
    return math.prod(
        min(edge, size - at * edge) for at, edge, size in zip(place, layout.shard, layout.shape, strict=True)
    )


class _ShardWriter:
    """Appends chunks to a shard's file under a name of its own until it is complete."""

    def __init__(self, folder: Path, layout: Layout, place: Triple) -> None:
        self._path, self._layout, self._place = layout.shard_path(folder, place), layout, place
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.partial = self._path.with_name(self._path.name + _PARTIAL)
        self._file: IO[bytes] = self.partial.open("wb")
        self._index = empty_index(layout)
        self._at = self._crc = 0

    def append(self, first_chunk: int, block: npt.NDArray[Any]) -> None:
        """Write the chunks of the next planes of the shard."""
        chunks = chunks_of(self._layout, block)
        nz, ny, nx = chunks.shape[:3]
        size = self._layout.chunk_bytes
        if self._layout.codec == NONE:
            offsets = self._at + np.arange(nz * ny * nx, dtype=np.uint64).reshape(nz, ny, nx) * np.uint64(size)
            self._index[first_chunk : first_chunk + nz, :ny, :nx, 0] = offsets
            self._index[first_chunk : first_chunk + nz, :ny, :nx, 1] = size
            data = chunks.reshape(-1).view(np.uint8).data
            self._file.write(data)
            self._crc, self._at = zlib.crc32(data, self._crc), self._at + len(data)
            return
        for place in np.ndindex(nz, ny, nx):
            packed = encode_chunk(self._layout, chunks[place])
            self._index[first_chunk + place[0], place[1], place[2]] = (self._at, len(packed))
            self._file.write(packed)
            self._crc, self._at = zlib.crc32(packed, self._crc), self._at + len(packed)

    def finish(self) -> int:
        """Write the index, flush to the disk, give the file its name; returns the CRC32 of the file."""
        end = encode_index(self._index)
        self._file.write(end)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.partial, self._path)
        return zlib.crc32(end, self._crc)

    def discard(self) -> None:
        """Remove a shard that is not complete."""
        with contextlib.suppress(OSError):  # of a full disk, when the rest of its buffer is written
            self._file.close()
        self.partial.unlink(missing_ok=True)


def _write_shards(
    slabs: Slabs, folder: Path, layout: Layout, places: list[Triple], planes: int, advance: Callable[[int], None]
) -> dict[Triple, int]:
    """Write shards of one layer; they lie in neighbouring rows."""
    layer = places[0][0]
    z_first = layer * layout.shard[0]
    z_last = min(z_first + layout.shard[0], layout.shape[0])
    y_first = min(place[1] for place in places) * layout.shard[1]
    y_last = min((max(place[1] for place in places) + 1) * layout.shard[1], layout.shape[1])
    with _writers(folder, layout, places) as writers:
        for z in range(z_first, z_last, planes):
            slab = slabs.read(z, min(z + planes, z_last), y_first, y_last)
            for (_, y, x), writer in writers.items():
                top, left = y * layout.shard[1] - y_first, x * layout.shard[2]
                block = slab[:, top : top + layout.shard[1], left : left + layout.shard[2]]
                writer.append((z - z_first) // layout.chunk[0], block)
                advance(block.size)
        return {place: writer.finish() for place, writer in writers.items()}


@contextlib.contextmanager
def _writers(folder: Path, layout: Layout, places: list[Triple]) -> Iterator[dict[Triple, _ShardWriter]]:
    writers: dict[Triple, _ShardWriter] = {}
    try:
        for place in places:
            writers[place] = _ShardWriter(folder, layout, place)
        yield writers
    except OSError as error:
        import errno

        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"{folder}: the disk is full: make room, and give the same command again") from None
        raise UsageError(f"{error.filename or folder}: it cannot be written ({error.strerror})") from None
    finally:
        for writer in writers.values():
            writer.discard()
