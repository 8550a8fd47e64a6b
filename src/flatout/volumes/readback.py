"""Reads staged volumes back from the disk: are they what was written, their intensities, where the classes are."""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import StagingFailed, UsageError
from flatout.formats.volume_chunks import Triple
from flatout.volumes.array_folders import COUNTS
from flatout.volumes.convert import read_journal
from flatout.volumes.foreground import N_ORIGIN
from flatout.volumes.layout import METADATA, Layout, read_layout
from flatout.volumes.patch_reader import ShardedVolume
from flatout.volumes.slabs import Slabs
from flatout.volumes.staged import read_staged
from flatout.volumes.statistics import Counting, Intensities

_PIECE_BYTES = 1 << 22
COMPARED_SLABS = 3  # read anew from the source: its first, last and middle planes


@dataclass(frozen=True)
class LabelCounts:
    """Where the labels of a volume are.

    Attributes:
        values: that occur, sorted, with the ignored one.
        rows: of each block z, y, x of its first voxel, then a count for each value.
    """

    values: tuple[int, ...]
    rows: npt.NDArray[np.int32]

    def save(self, path: Path) -> None:
        """Write to a file."""
        with path.open("wb") as file:
            np.savez(file, values=np.array(self.values), rows=self.rows)

    @classmethod
    def load(cls, path: Path) -> LabelCounts:
        """Read from a file."""
        with np.load(path, allow_pickle=False) as found:
            return cls(tuple(int(value) for value in found["values"]), found["rows"])

    def index(self, classes: tuple[int, ...]) -> npt.NDArray[np.int32]:
        """Rows for :class:`~flatout.volumes.foreground.ForegroundIndex`: of blocks with labels, a column a class."""
        columns = [self.rows[:, :N_ORIGIN]]
        for value in classes:
            there = value in self.values
            at = N_ORIGIN + self.values.index(value) if there else 0
            columns.append(self.rows[:, [at]] if there else np.zeros((len(self.rows), 1), np.int32))
        rows = np.concatenate(columns, axis=1)
        return rows[rows[:, N_ORIGIN:].any(axis=1)]


def compare_files(folder: Path, layout: Layout, crcs: dict[Triple, int]) -> None:
    """Compare the shards' files with what was written.

    Raises:
        StagingFailed: a file differs, or a shard has none.
    """
    for place in np.ndindex(*layout.grid):
        path = layout.shard_path(folder, (place[0], place[1], place[2]))
        try:
            crc = crc_of(path)
        except OSError as error:
            raise StagingFailed(f"{path}: it cannot be read back ({error.strerror}): stage again") from None
        if crc != crcs[place[0], place[1], place[2]]:
            os.unlink(path)  # the next staging writes it anew
            raise StagingFailed(f"{path}: its bytes are not those written: is the disk sound? Stage again")


@dataclass(frozen=True)
class VolumeCheck:
    """Files of a staged data set compared with the checksums of their staging.

    Attributes:
        damaged: paths of files that are missing or differ.
    """

    files: int
    damaged: tuple[str, ...]
    duration_s: float

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def check(folder: Path) -> VolumeCheck:
    """Compare the files of a staged data set with their checksums.

    Raises:
        UsageError: it is none.
    """
    began = time.monotonic()
    damaged, files = [], 0
    for case in read_staged(folder).cases:
        for name in (case.image, case.label):
            if name is None:
                continue
            layout = read_layout(folder / name)
            if layout is None:
                raise UsageError(f"{folder / name}: its {METADATA} is not of a staging: stage again")
            crcs = read_journal(folder / name)
            for place in np.ndindex(*layout.grid):
                z, y, x = place
                path = layout.shard_path(folder / name, (z, y, x))
                files += 1
                with contextlib.suppress(OSError):
                    if crc_of(path) == crcs.get((z, y, x)):
                        continue
                damaged.append(str(path))
    return VolumeCheck(files, tuple(damaged), time.monotonic() - began)


def damaged_shards(folder: Path, layout: Layout) -> list[Path]:
    """Shards of a complete array that are missing, or changed since and differ from what was written.

    Only files that are newer than the array's counts, which were written last, are read.
    """
    complete_ns, crcs, damaged = (folder / COUNTS).stat().st_mtime_ns, read_journal(folder), []
    for place in np.ndindex(*layout.grid):
        z, y, x = place
        path = layout.shard_path(folder, (z, y, x))
        try:
            if path.stat().st_mtime_ns > complete_ns and crc_of(path) != crcs.get((z, y, x)):
                damaged.append(path)
        except OSError:
            damaged.append(path)
    return damaged


def crc_of(path: Path) -> int:
    """CRC32 of a file, read in pieces."""
    crc = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            crc = zlib.crc32(piece, crc)
    return crc


def compare_source(slabs: Slabs, volume: ShardedVolume) -> None:
    """Compare some planes with the source, read anew.

    Raises:
        StagingFailed: they differ: the source has changed meanwhile.
    """
    depth, height, width = volume.shape
    for z in sorted({round(at * (depth - 1) / (COMPARED_SLABS - 1)) for at in range(COMPARED_SLABS)}):
        if not np.array_equal(slabs.read(z, z + 1, 0, height), volume.read(z, 0, 0, 1, height, width)):
            raise StagingFailed(
                f"{slabs.source.path}: slice {z} is no longer what was staged: stage again when it is still"
            )


def intensities(volume: ShardedVolume, advance: Callable[[int], None]) -> Intensities:
    """Count the intensities of a volume."""
    counting = Counting(volume.dtype, int(np.prod(volume.shape)))
    for _, block in _slabs(volume):
        counting.add(block)
        advance(block.size)
    return counting.result()


def label_counts(volume: ShardedVolume, advance: Callable[[int], None]) -> LabelCounts:
    """Count the labels of a volume by chunk."""
    values: list[int] = []
    found: list[tuple[list[int], npt.NDArray[np.int64]]] = []
    edges = volume.layout.chunk
    for origin, slab in _slabs(volume):
        for y in range(0, slab.shape[1], edges[1]):
            for x in range(0, slab.shape[2], edges[2]):
                block = slab[:, y : y + edges[1], x : x + edges[2]]
                counts = np.bincount(np.ascontiguousarray(block).reshape(-1), minlength=256)
                found.append(([origin[0], origin[1] + y, origin[2] + x], counts[:256].astype(np.int32)))
                values = sorted({*values, *(int(value) for value in np.flatnonzero(counts))})
        advance(slab.size)
    rows = np.array([[*origin, *(int(counts[value]) for value in values)] for origin, counts in found], np.int32)
    return LabelCounts(tuple(values), rows)


def _slabs(volume: ShardedVolume) -> Iterator[tuple[list[int], npt.NDArray[Any]]]:
    """Slabs of shards, a chunk thick, with the place of their first voxel."""
    layout = volume.layout
    steps = (layout.chunk[0], layout.shard[1], layout.shard[2])
    counts = [-(-size // step) for size, step in zip(layout.shape, steps, strict=True)]
    for place in np.ndindex(*counts):
        origin = [at * step for at, step in zip(place, steps, strict=True)]
        size = [min(step, whole - at) for step, whole, at in zip(steps, layout.shape, origin, strict=True)]
        yield origin, volume.read(*origin, *size)
