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
from flatout.volumes.sources.chunked import among_others, choose
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


def npz_holds_labels(path: Path) -> bool:
    """True if a file has an array of labels beside that of an image."""
    try:
        with zipfile.ZipFile(path) as archive:
            return among_others(_arrays(archive))
    except (OSError, zipfile.BadZipFile):
        return False  # said when it is read


def open_npz(path: Path, role: str) -> StreamSource:
    """The array of an npz file that is the image, or with ``role`` "label" the labels; the one that there is.

    Raises:
        UsageError: it is not clear which one, or it cannot be read.
    """
    try:
        archive = zipfile.ZipFile(path)
        names = _arrays(archive)
        name = names[0] if len(names) == 1 else choose(path, names, role)
        with archive.open(f"{name}.npy") as member:
            shape, fortran, dtype = _header(member)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: it cannot be read as npz ({error}): get it again") from None
    if fortran:
        raise UsageError(f"{path}: its array is in Fortran order: save numpy.ascontiguousarray of it")
    if dtype.hasobject:
        raise UsageError(f"{path}: it holds Python objects, not numbers: save an array of numbers")

    def stream() -> IO[bytes]:
        member = archive.open(f"{name}.npy")
        _header(member)
        return member

    return StreamSource(path, stream, three_axes(path, shape)[0], dtype)


def _arrays(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy_format.read_magic(member)
    return npy_format.read_array_header_1_0(member) if version == (1, 0) else npy_format.read_array_header_2_0(member)
