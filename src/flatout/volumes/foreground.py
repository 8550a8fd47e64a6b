"""Where the classes are: counts by block, not a list of voxels, so that a volume of 10¹⁰ voxels fits in memory.

Drawing a voxel of a class takes two steps: a block by its count, then one of its voxels from the block's labels, which
are one chunk to read. Each voxel of the class is as likely as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple
from flatout.volumes.opening import Volume

N_ORIGIN = 3  # columns of a row before the counts: z, y, x of the block's first voxel


def count_block(labels: npt.NDArray[Any], classes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Voxels of each class in a block."""
    return np.array([np.count_nonzero(labels == value) for value in classes], np.int64)


class ForegroundIndex:
    """The index of a volume.

    Args:
        rows: of each block with labels, z, y, x of its first voxel, then a count for each class; int32.
        block: edges of a block, voxels.
        classes: label values of the counts' columns, background first.
    """

    def __init__(self, rows: npt.NDArray[np.int32], block: Triple, classes: Sequence[int]) -> None:
        self.origins = rows[:, :N_ORIGIN]
        self.block, self.classes = block, tuple(classes)
        counts = rows[:, N_ORIGIN:]
        self._labelled = np.cumsum(counts.sum(axis=1, dtype=np.int64))
        self._by_class = [np.cumsum(counts[:, at], dtype=np.int64) for at in range(len(self.classes))]

    @classmethod
    def load(cls, path: Path, block: Triple, classes: Sequence[int]) -> ForegroundIndex:
        """Read the index.

        Raises:
            UsageError: the file is missing, cut off, or of other classes.
        """
        try:
            rows = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UsageError(f"{path}: the index of the labels cannot be read ({error}): stage again") from None
        if rows.ndim != 2 or rows.shape[1] != N_ORIGIN + len(classes) or rows.dtype != np.int32:
            raise UsageError(
                f"{path}: the index is {rows.dtype} of shape {rows.shape}, not of these classes: stage again"
            )
        return cls(rows, block, classes)

    @property
    def labelled(self) -> int:
        """Voxels that have a label."""
        return int(self._labelled[-1]) if len(self._labelled) else 0

    def count(self, value: int) -> int:
        """Voxels of a class."""
        counts = self._by_class[self.classes.index(value)]
        return int(counts[-1]) if len(counts) else 0

    @property
    def foreground(self) -> tuple[int, ...]:
        """Classes beside the background that occur."""
        return tuple(value for value in self.classes[1:] if self.count(value))

    def draw(self, rng: np.random.Generator, labels: Volume, value: int | None = None) -> Triple:
        """Draw a voxel.

        Args:
            rng: its state moves on.
            labels: the volume of the labels.
            value: of a class that occurs; None: any that has a label.
        """
        totals = self._labelled if value is None else self._by_class[self.classes.index(value)]
        nth = int(rng.integers(totals[-1]))
        row = int(np.searchsorted(totals, nth, side="right"))
        within = nth - (int(totals[row - 1]) if row else 0)
        z, y, x = (int(at) for at in self.origins[row])
        dz, dy, dx = (min(edge, size - at) for edge, size, at in zip(self.block, labels.shape, (z, y, x), strict=True))
        voxels = labels.read(z, y, x, dz, dy, dx)
        wanted = np.isin(voxels, self.classes) if value is None else voxels == value
        places = np.flatnonzero(wanted)
        if within >= len(places):
            raise UsageError("the labels are not those of their index: they changed after staging: stage them again")
        dz, dy, dx = (int(at) for at in np.unravel_index(places[within], voxels.shape))
        return z + dz, y + dy, x + dx
