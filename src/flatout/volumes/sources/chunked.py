"""HDF5, and zarr of any version and layout, with OME's description where there is one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.volumes.sources.base import ArraySource, three_axes

HDF5_SUFFIXES = (".h5", ".hdf5", ".hdf")
ZARR_SUFFIXES = (".zarr",)
ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
IMAGE_NAMES = ("image", "raw", "data", "volume")
LABEL_NAMES = ("label", "labels", "mask", "masks", "gt", "segmentation")


class ChunkedSource(ArraySource):
    """An array of h5py or zarr."""

    def __init__(self, path: Path, array: Any, axes: str = "", spacing: Any = None, file: Any = None) -> None:
        self.path = path
        self.shape, self._index = three_axes(path, tuple(array.shape), axes)
        self.dtype = np.dtype(array.dtype)
        if spacing is not None:
            z, y, x = (float(size) for size, at in zip(spacing, self._index, strict=True) if not isinstance(at, int))
            self.spacing = z, y, x
            self.says_spacing = self.spacing != (1.0, 1.0, 1.0)  # writers of OME-Zarr fill in 1 where nobody said one
        chunks = getattr(array, "shards", None) or array.chunks
        if chunks is not None:
            kept = [size for size, at in zip(chunks, self._index, strict=True) if not isinstance(at, int)]
            self.step = min(kept[0], self.shape[0])
            # Rows of a chunk that holds whole planes come with all of the chunk.
            self.crops = kept[1] < self.shape[1]
        self._array, self._file = array, file

    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1, of each the rows y0 to y1."""
        wanted = iter((slice(z0, z1), slice(y0, y1), slice(None)))
        index = tuple(at if isinstance(at, int) else next(wanted) for at in self._index)
        try:
            return np.asarray(self._array[index])
        except Exception as error:  # of each codec and store their own
            why = str(error).strip().split("\n")[0] or type(error).__name__
            raise UsageError(
                f"{self.path}: slices {z0} to {z1 - 1} cannot be read ({why}): a chunk is cut off or damaged: get it"
                " again"
            ) from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def open_hdf5(path: Path, role: str) -> ChunkedSource:
    """The data set of an HDF5 file that holds the images, or with ``role`` "label" the labels.

    Raises:
        UsageError: it cannot be read, or it is not clear which data set is meant.
    """
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise UsageError(f"{path}: it cannot be read as HDF5 ({error}): get it again") from None
    found: dict[str, Any] = {}
    file.visititems(
        lambda name, node: (
            found.__setitem__(name, node) if isinstance(node, h5py.Dataset) and _volume_like(node.shape) else None
        )
    )
    return ChunkedSource(path, found[choose(path, list(found), role)], file=file)


def hdf5_holds_labels(path: Path) -> bool:
    """True if a file has volumes of labels beside those of images."""
    import h5py

    names: list[str] = []
    try:
        with h5py.File(path, "r") as file:
            file.visit(names.append)
    except OSError:
        return False  # said when it is read
    return among_others(names)


def among_others(names: Sequence[str]) -> bool:
    """True if one of several names is that of labels."""
    return any(name.rpartition("/")[2].lower() in LABEL_NAMES for name in names) and len(names) > 1


def open_zarr(path: Path) -> ChunkedSource:
    """An array of zarr, or the full resolution of an OME-Zarr picture.

    Raises:
        UsageError: it cannot be read, or holds several arrays.
    """
    import zarr

    try:
        node: Any = zarr.open(path, mode="r")
        if isinstance(node, zarr.Array):
            return ChunkedSource(path, node)
        attributes: Any = dict(node.attrs)
        scales = attributes.get("ome", attributes).get("multiscales")
        if scales:
            level = scales[0]["datasets"][0]
            axes = "".join(
                (axis["name"] if isinstance(axis, dict) else axis)[0].upper() for axis in scales[0].get("axes", "")
            )
            scale = next((c["scale"] for c in level.get("coordinateTransformations", ()) if c["type"] == "scale"), None)
            return ChunkedSource(path, node[level["path"]], axes, scale)
        arrays = {name: array for name, array in node.arrays() if _volume_like(array.shape)}
    except UsageError:
        raise
    except Exception as error:
        why = str(error).strip().split("\n")[0] or type(error).__name__
        raise UsageError(f"{path}: it cannot be read as zarr ({why}): get it again") from None
    return ChunkedSource(path, arrays[choose(path, list(arrays), "image")])


def _volume_like(shape: tuple[int, ...]) -> bool:
    return len(shape) >= 3 and sum(size > 1 for size in shape) <= 3 and math.prod(shape) > 0


def choose(path: Path, names: Sequence[str], role: str) -> str:
    """The one of a file's arrays that is its "image", or its "label", by their names.

    Raises:
        UsageError: it is not clear.
    """
    wanted, others = (LABEL_NAMES, IMAGE_NAMES) if role == "label" else (IMAGE_NAMES, LABEL_NAMES)
    last = {name: name.rpartition("/")[2].lower() for name in names}
    for candidates in ([n for n in names if last[n] in wanted], [n for n in names if last[n] not in others]):
        if len(candidates) == 1:
            return candidates[0]
    shown = ", ".join(names[:6]) or "none"
    raise UsageError(f"{path}: which of its volumes ({shown}) is the {role} is not clear: name it {wanted[0]}")
