"""Volumes in layouts that were not made for patches, read as they are: npy by memory map, other zarr by zarr-python."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple, touched_ratio
from flatout.volumes.sources.base import three_axes
from flatout.volumes.sources.open import is_zarr

EXAMPLE: Triple = (128, 128, 128)  # the patch of which the warning speaks
_MUCH = 3.0  # times a patch's bytes


class PlainVolume:
    """A volume that is read as it is.

    Args:
        path: for messages.
        array: of numpy or zarr.
    """

    spacing = (1.0, 1.0, 1.0)

    def __init__(self, path: Path, array: Any) -> None:
        self.path = path
        self.shape, self._index = three_axes(path, tuple(array.shape))
        self.dtype = np.dtype(array.dtype).newbyteorder("=")
        if self.dtype.kind not in "biuf":
            raise UsageError(f"{path}: its voxels are {self.dtype}: known are whole and real numbers")
        self._array = array

    def read(self, z: int, y: int, x: int, dz: int, dy: int, dx: int, fill: int = 0) -> npt.NDArray[Any]:
        """Voxels of the box that begins at (z, y, x); those outside the volume are ``fill``."""
        out = np.full((dz, dy, dx), fill, self.dtype)
        low = [max(at, 0) for at in (z, y, x)]
        high = [min(at + n, size) for at, n, size in zip((z, y, x), (dz, dy, dx), self.shape, strict=True)]
        if all(a < b for a, b in zip(low, high, strict=True)):
            wanted = iter([slice(a, b) for a, b in zip(low, high, strict=True)])
            index = tuple(at if isinstance(at, int) else next(wanted) for at in self._index)
            target = tuple(slice(a - at, b - at) for a, b, at in zip(low, high, (z, y, x), strict=True))
            try:
                out[target] = self._array[index]
            except Exception as error:  # of each codec and store their own
                why = str(error).strip().split("\n")[0] or type(error).__name__
                raise UsageError(f"{self.path}: the box at {(z, y, x)} cannot be read ({why}): get it again") from None
        return out


def open_plain(path: Path) -> PlainVolume:
    """Open an npy file or an array of zarr; warns where its layout reads much more than a patch.

    Raises:
        UsageError: it is neither, or cannot be read.
    """
    stage = f"stage it by flatout stage {path} DEST --volumes"
    try:
        if path.is_dir() and is_zarr(path):
            import zarr

            array: Any = zarr.open_array(path, mode="r")
            chunks = array.chunks
        elif path.suffix == ".npy":
            array, chunks = np.load(path, mmap_mode="r", allow_pickle=False), None
        else:
            raise UsageError(f"{path}: it is no zarr and no npy: {stage}")
    except UsageError:
        raise
    except Exception as error:
        why = str(error).strip().split("\n")[0] or type(error).__name__
        raise UsageError(f"{path}: it cannot be opened ({why}): get it again") from None
    volume = PlainVolume(path, array)
    if chunks is None:
        warnings.warn(
            f"{path}: a memory map reads 128 KiB around each row that is not in memory: {stage} unless all volumes fit"
            " in memory",
            stacklevel=3,
        )
    else:
        edges = [size for size, at in zip(chunks, volume._index, strict=True) if not isinstance(at, int)]
        ratio = touched_ratio(EXAMPLE, (edges[0], edges[1], edges[2]))
        if ratio > _MUCH:
            warnings.warn(
                f"{path}: chunks of {tuple(edges)}: a patch of 128³ reads {ratio:.1f} times its bytes (computed):"
                f" {stage}",
                stacklevel=3,
            )
    return volume
