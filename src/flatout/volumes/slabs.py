"""Slabs of a source as they are staged: of a type that trainings read, checked voxel by voxel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.volumes.layout import DTYPES
from flatout.volumes.sources.base import ArraySource

IGNORE = 255  # the value of voxels without a label, where a volume of its own says which they are


class Slabs(ABC):
    """What is written: slabs of one volume.

    Attributes:
        source: it is read from.
        dtype: of the slabs.
        working_bytes: of a voxel while a slab is prepared.
    """

    source: ArraySource
    dtype: np.dtype[Any]
    working_bytes: int

    @abstractmethod
    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1, of each the rows y0 to y1.

        Raises:
            UsageError: the source is damaged, or has values that cannot be trained on.
        """


class ImageSlabs(Slabs):
    """Slabs of an image: integers as they are, float64 as float32."""

    def __init__(self, source: ArraySource) -> None:
        kind, size = source.dtype.kind, source.dtype.itemsize
        self.source = source
        if source.dtype.kind == "b":
            self.dtype = np.dtype(np.uint8)
        elif (kind == "f" and size >= 8) or (kind in "iu" and size == 8):
            self.dtype = np.dtype(np.float32 if kind == "f" else np.int32)
        else:
            self.dtype = source.dtype.newbyteorder("=")
        if self.dtype.name not in DTYPES:
            raise UsageError(f"{source.path}: its voxels are {source.dtype}: known are {', '.join(DTYPES)}")
        self.working_bytes = 2 * source.dtype.itemsize + self.dtype.itemsize

    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1, of each the rows y0 to y1."""
        found = self.source.read(z0, z1, y0, y1)
        if found.dtype.kind in "iu" and found.dtype.itemsize == 8 and found.size:
            low, high = int(found.min()), int(found.max())
            if low < -(2**31) or high >= 2**31:
                raise UsageError(
                    f"{self.source.path}: values from {low} to {high} do not fit into 32 bits: rescale them"
                )
        with np.errstate(over="ignore"):  # looked for below
            slab = found.astype(self.dtype, copy=False)
        if self.dtype.kind == "f":
            for at, plane in enumerate(slab):
                if not np.isfinite(plane).all():
                    bad = int(plane.size - np.isfinite(plane).sum())
                    raise UsageError(
                        f"{self.source.path}: slice {z0 + at} holds NaN, infinite values or values above float32 in"
                        f" {bad:,} of its voxels: replace them by a number first"
                    )
        return slab


class LabelSlabs(Slabs):
    """Slabs of labels, as uint8.

    Args:
        source: of the labels.
        mask: of the voxels without a label (not 0); None: there is no such volume.
        ignore: the source's value of voxels without a label; None: all have one.
        classes: values from 0 to this less one are allowed; None: any up to 255.
    """

    def __init__(self, source: ArraySource, mask: ArraySource | None, ignore: int | None, classes: int | None) -> None:
        self.source, self.mask, self.classes = source, mask, classes
        self.dtype = np.dtype(np.uint8)
        self._ignore = ignore
        self.ignore = staged_ignore(ignore, mask is not None)
        self.working_bytes = 3 * source.dtype.itemsize + (mask.dtype.itemsize + 1 if mask else 0)

    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1, of each the rows y0 to y1."""
        found = self.source.read(z0, z1, y0, y1)
        slab = np.zeros(found.shape, np.uint8)
        for at, plane in enumerate(found):
            slab[at] = self._plane(plane, z0 + at)
        if self.mask is not None:
            assert self.ignore is not None
            slab[self.mask.read(z0, z1, y0, y1) != 0] = self.ignore
        return slab

    def _plane(self, plane: npt.NDArray[Any], z: int) -> npt.NDArray[np.uint8]:
        path = self.source.path
        unlabelled = plane == self._ignore if self._ignore is not None else np.zeros(plane.shape, bool)
        labels = np.where(unlabelled, 0, plane)
        if plane.dtype.kind == "f" and not (np.isfinite(labels).all() and (labels == np.floor(labels)).all()):
            raise UsageError(f"{path}: slice {z} has labels that are no whole numbers: is it an image?")
        low, high = int(labels.min()), int(labels.max())
        most = 255 if self.classes is None else self.classes - 1
        if low < 0 or high > most:
            value, allowed = (low if low < 0 else high), f"0 to {most}"
            raise UsageError(
                f"{path}: slice {z} has the label {value}, allowed are {allowed}: number the classes from 0, or give"
                f" --ignore {value} if it marks voxels without a label"
            )
        out = labels.astype(np.uint8)
        if self._ignore is not None:
            assert self.ignore is not None
            if self._ignore != self.ignore and (out == self.ignore).any():
                raise UsageError(
                    f"{path}: slice {z} has the label {self.ignore}, which --ignore {self._ignore} becomes"
                )
            out[unlabelled] = self.ignore
        return out


def staged_ignore(ignore: int | None, has_mask: bool) -> int | None:
    """The value that voxels without a label get: uint8 holds no negative one."""
    if ignore is not None and 0 <= ignore <= 255:
        return ignore
    return IGNORE if ignore is not None or has_mask else None
