"""NIfTI and NRRD. Voxels are kept as they lie; nothing is turned or resampled."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple
from flatout.volumes.sources.base import ArraySource, three_axes
from flatout.volumes.sources.streams import Readable, StreamSource

NIFTI_SUFFIXES = (".nii", ".nii.gz")
NRRD_SUFFIXES = (".nrrd", ".nhdr")


# Names that the format allows for one type: https://teem.sourceforge.net/nrrd/format.html#type
_NRRD_TYPES = {
    name: code
    for code, names in {
        "i1": ("signed char", "int8", "int8_t"),
        "u1": ("uchar", "unsigned char", "uint8", "uint8_t"),
        "i2": ("short", "short int", "signed short", "signed short int", "int16", "int16_t"),
        "u2": ("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"),
        "i4": ("int", "signed int", "int32", "int32_t"),
        "u4": ("uint", "unsigned int", "uint32", "uint32_t"),
        "i8": ("longlong", "long long", "long long int", "signed long long", "int64", "int64_t"),
        "u8": ("ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"),
        "f4": ("float",),
        "f8": ("double",),
    }.items()
    for name in names
}


_NRRD_SPACES = {
    **dict.fromkeys(("left-posterior-superior", "lps"), (-1.0, -1.0)),
    **dict.fromkeys(("right-anterior-superior", "ras"), (1.0, 1.0)),
    **dict.fromkeys(("left-anterior-superior", "las"), (-1.0, 1.0)),
}


class ScaledSource(ArraySource):
    """A source whose values are stored as integers with a slope and an offset."""

    def __init__(self, stored: ArraySource, slope: float, offset: float) -> None:
        self.path, self.shape, self.crops = stored.path, stored.shape, stored.crops
        self.spacing, self.says_spacing, self.affine = stored.spacing, stored.says_spacing, stored.affine
        self.dtype = np.dtype(np.float32)
        self._stored, self._slope, self._offset = stored, slope, offset

    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1, of each the rows y0 to y1."""
        stored = self._stored.read(z0, z1, y0, y1)
        return (stored * np.float64(self._slope) + np.float64(self._offset)).astype(np.float32)

    def close(self) -> None:
        """Close the files."""
        self._stored.close()


class _Unpacked(gzip.GzipFile):
    """Closes the file that it reads, which GzipFile leaves open."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file)
        self._below = file

    def close(self) -> None:
        super().close()
        self._below.close()


def open_nifti(path: Path) -> ArraySource:
    """A NIfTI file; its axes x, y, z become z, y, x.

    Raises:
        UsageError: it cannot be read, or has a time axis.
    """
    import nibabel

    try:
        image: Any = nibabel.load(path)
        voxels = image.dataobj  # the header forgets the offset and the slope once it is loaded
        dtype, offset, sizes = voxels.dtype, int(voxels.offset), voxels.shape
        slope, inter, zooms = float(voxels.slope), float(voxels.inter), image.header.get_zooms()
    except Exception as error:  # nibabel's own, the file system's, and struct's
        raise UsageError(f"{path}: it cannot be read as NIfTI ({_first_line(error)}): get it again") from None
    if not isinstance(image, nibabel.Nifti1Image):
        raise UsageError(f"{path}: it is {type(image).__name__}, not NIfTI in one file: convert it to .nii.gz")
    shape = three_axes(path, tuple(int(size) for size in reversed(sizes)))[0]
    spacing = _spacing(path, zooms[:3])
    packed = path.name.endswith(".gz")
    stored = _stored(path, offset, shape, dtype, spacing, packed)
    # Without a code nibabel makes an affine up.
    if int(image.header["sform_code"]) or int(image.header["qform_code"]):
        stored.affine = np.asarray(image.affine, float)
    return stored if (slope, inter) == (1.0, 0.0) else ScaledSource(stored, slope, inter)


def open_nrrd(path: Path) -> ArraySource:
    """An NRRD file with its voxels in it, or beside it in one file, raw or in gzip.

    Raises:
        UsageError: it cannot be read, or is laid out otherwise.
    """
    import nrrd

    try:
        with path.open("rb") as file:
            header = nrrd.read_header(file)
            offset = file.tell()
        is_big = header.get("endian", "little").lower() == "big"
        dtype = np.dtype(_NRRD_TYPES[header["type"].lower()]).newbyteorder(">" if is_big else "<")
    except Exception as error:
        raise UsageError(f"{path}: it cannot be read as NRRD ({_first_line(error)}): get it again") from None
    encoding = header["encoding"].lower()
    if encoding not in ("raw", "gzip", "gz"):
        raise UsageError(f"{path}: its encoding is {header['encoding']}: save it as raw or gzip")
    data = path
    named = header.get("datafile", header.get("data file"))
    if named is not None:
        data, offset = path.parent / str(named), int(header.get("byteskip", header.get("byte skip", 0)))
        if "%" in str(named) or str(named).upper().startswith("LIST") or offset < 0:
            raise UsageError(f"{path}: its voxels lie in several files ({named}): save it as one .nrrd")
    shape = three_axes(path, tuple(int(size) for size in reversed(header["sizes"])))[0]
    if "space directions" in header:
        directions = np.asarray(header["space directions"], float)
        directions = directions[np.isfinite(directions).all(axis=1)]
        affine = _nrrd_affine(header, directions)
        spacing = _spacing(path, np.linalg.norm(directions, axis=1)[:3])
    else:
        spacing, affine = _spacing(path, header.get("spacings", ())[:3]), None
    stored = _stored(data, offset, shape, dtype, spacing, packed=encoding != "raw", after_header=True)
    stored.affine = affine
    return stored


def _nrrd_affine(header: Any, directions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
    """As NIfTI has it: its axes point to the right, the front and the top; None where the header does not say."""
    signs = _NRRD_SPACES.get(str(header.get("space", "")).lower())
    origin = np.asarray(header.get("space origin", ()), float)
    if signs is None or directions.shape != (3, 3) or origin.shape != (3,) or not np.isfinite(origin).all():
        return None
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = directions.T, origin
    return np.diag([*signs, 1.0, 1.0]) @ affine


def _stored(
    path: Path,
    offset: int,
    shape: Triple,
    dtype: np.dtype[Any],
    spacing: tuple[float, float, float] | None,
    packed: bool,
    after_header: bool = False,
) -> ArraySource:
    """The voxels from ``offset`` on: of the unpacked file, or with ``after_header`` of where the packed part begins."""
    needed = math.prod(shape) * dtype.itemsize
    if not packed and offset + needed > path.stat().st_size:
        raise UsageError(f"{path}: it is cut off: {path.stat().st_size:,} of {offset + needed:,} bytes: get it again")

    def stream() -> Readable:
        file = path.open("rb")
        if packed and not after_header:
            unpacked = _Unpacked(file)
            unpacked.read(offset)
            return unpacked
        file.seek(offset)
        return _Unpacked(file) if packed else file

    return StreamSource(path, stream, shape, dtype, spacing)


def _spacing(path: Path, sizes: Any) -> tuple[float, float, float] | None:
    """Of voxels along z, y, x, from x, y, z; None where the header has none that can be used."""
    found = [abs(float(size)) for size in sizes]
    if len(found) != 3 or not all(math.isfinite(size) and size > 0 for size in found):
        return None
    x, y, z = found
    return z, y, x


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
