"""npy and npz."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from flatout.errors import UsageError
from flatout.volumes.sources.base import ArraySource, three_axes
from flatout.volumes.sources.streams import StreamSource


class NpySource(ArraySource):
    """An npy file, memory-mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UsageError(f"{path}: it cannot be read as npy ({error}): get it again") from None
        self.shape, index = three_axes(path, array.shape)
        self._array = array[index]
        self.dtype = array.dtype

    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1, of each the rows y0 to y1."""
        return np.asarray(self._array[z0:z1, y0:y1])


def open_npz(path: Path) -> StreamSource:
    """The one array of an npz file.

    Raises:
        UsageError: there are several, or it cannot be read.
    """
    try:
        archive = zipfile.ZipFile(path)
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        if len(names) != 1:
            found = ", ".join(name.removesuffix(".npy") for name in names[:6]) or "none"
            raise UsageError(f"{path}: it holds {len(names)} arrays ({found}): save one volume a file")
        with archive.open(names[0]) as member:
            shape, fortran, dtype = _header(member)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: it cannot be read as npz ({error}): get it again") from None
    if fortran:
        raise UsageError(f"{path}: its array is in Fortran order: save numpy.ascontiguousarray of it")
    if dtype.hasobject:
        raise UsageError(f"{path}: it holds Python objects, not numbers: save an array of numbers")

    def stream() -> IO[bytes]:
        member = archive.open(names[0])
        _header(member)
        return member

    return StreamSource(path, stream, three_axes(path, shape)[0], dtype)


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy_format.read_magic(member)
    return npy_format.read_array_header_1_0(member) if version == (1, 0) else npy_format.read_array_header_2_0(member)
