"""What a source of a volume offers: its shape, and slabs of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple


class ArraySource(ABC):
    """A volume as somebody has it; axes z, y, x.

    Attributes:
        path: for messages, and to tell whether it has changed.
        shape: voxels.
        dtype: as stored, any byte order.
        spacing: distance of voxels along z, y, x; 1 where the source does not say.
        says_spacing: the source says its spacing, even if that is 1.
        affine: takes voxels (x, y, z, 1) to the patient's right, front and top, mm; None: the source does not say.
        step: planes along z that are best read at once: those of a chunk of the source.
        crops: reading a part of a plane costs less than the plane.
    """

    path: Path
    shape: Triple
    dtype: np.dtype[Any]
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)
    says_spacing: bool = False
    affine: npt.NDArray[np.float64] | None = None
    step: int = 1
    crops: bool = True

    @abstractmethod
    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1, of each the rows y0 to y1.

        Raises:
            UsageError: the file is cut off or damaged, or its codec is unknown.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close the files."""

    def files(self) -> list[Path]:
        """The files, if they are not ``path`` alone."""
        return [self.path]


def three_axes(path: Path, shape: tuple[int, ...], axes: str = "") -> tuple[Triple, tuple[int | slice, ...]]:
    """The three axes of an array with axes of length 1.

    Returns:
        The shape, and the index that takes the others away.

    Raises:
        UsageError: there are more or fewer than three.
    """
    names = axes if len(axes) == len(shape) else "?" * len(shape)
    surplus = len(shape) - 3
    index: list[int | slice] = []
    for size, name in zip(shape, names, strict=True):
        # Of an axis of length 1, a named z, y or x stays.
        drop = surplus > 0 and size == 1 and name not in "ZYX"
        surplus -= drop
        index.append(0 if drop else slice(None))
    kept = tuple(size for size, at in zip(shape, index, strict=True) if not isinstance(at, int))
    if len(kept) != 3 or min(kept) < 1:
        named = f" (axes {axes})" if axes else ""
        raise UsageError(
            f"{path}: it has the shape {shape}{named}: a volume has three axes z, y, x: split it into volumes"
        )
    return (kept[0], kept[1], kept[2]), tuple(index)
