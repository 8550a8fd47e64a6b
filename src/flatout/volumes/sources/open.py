"""Opens the source of a volume, by its name."""

from __future__ import annotations

from pathlib import Path

from flatout.errors import UsageError
from flatout.extras import require
from flatout.volumes.sources.base import ArraySource
from flatout.volumes.sources.chunked import (
    HDF5_SUFFIXES,
    ZARR_FILES,
    ZARR_SUFFIXES,
    hdf5_holds_labels,
    open_hdf5,
    open_zarr,
)
from flatout.volumes.sources.medical import NIFTI_SUFFIXES, NRRD_SUFFIXES, open_nifti, open_nrrd
from flatout.volumes.sources.numpy_files import NpySource, npz_holds_labels, open_npz
from flatout.volumes.sources.tif import SUFFIXES as TIF_SUFFIXES
from flatout.volumes.sources.tif import SliceSource, TifSource

FILE_SUFFIXES = (*TIF_SUFFIXES, ".npy", ".npz", *NIFTI_SUFFIXES, *NRRD_SUFFIXES, *HDF5_SUFFIXES)
# Suffix -> the package that reads it; npy and npz need none.
_PACKAGES = {
    **dict.fromkeys(TIF_SUFFIXES, "tifffile"),
    **dict.fromkeys(NIFTI_SUFFIXES, "nibabel"),
    **dict.fromkeys(NRRD_SUFFIXES, "nrrd"),
    **dict.fromkeys(HDF5_SUFFIXES, "h5py"),
}
KNOWN = "tif, a folder of slice tifs, npy, npz, nii, nii.gz, nrrd, HDF5 and zarr"


def suffix_of(name: str) -> str:
    """The known suffix that a name ends with; empty: none."""
    lower = name.lower()
    return next((suffix for suffix in (*FILE_SUFFIXES, *ZARR_SUFFIXES) if lower.endswith(suffix)), "")


def is_zarr(folder: Path) -> bool:
    """True for the folder of a zarr array or group."""
    return any((folder / name).is_file() for name in ZARR_FILES)


def may_hold_labels(name: str) -> bool:
    """True for the name of a file that may hold labels beside its image."""
    return name.lower().endswith((*HDF5_SUFFIXES, ".npz"))


def holds_labels(path: Path) -> bool:
    """True for a file with labels beside its image."""
    if not may_hold_labels(path.name):
        return False
    return npz_holds_labels(path) if path.suffix.lower() == ".npz" else hdf5_holds_labels(path)


def open_source(path: Path, role: str = "image") -> ArraySource:
    """Open a volume.

    Args:
        path: file or folder.
        role: "image" or "label": which volume of a file that holds both.

    Raises:
        UsageError: it is missing or damaged, or its format is unknown.
    """
    try:
        return _open(path, role)
    except OSError as error:
        raise UsageError(f"{path}: it cannot be read ({error.strerror or error})") from None


def _open(path: Path, role: str) -> ArraySource:
    if path.is_dir():
        if is_zarr(path):
            require("volumes", ("zarr",))
            return open_zarr(path)
        slices = [file for file in path.iterdir() if file.name.lower().endswith(TIF_SUFFIXES) and file.name[0] != "."]
        if not slices:
            raise UsageError(f"{path}: no volume is there: known are {KNOWN}")
        require("volumes", ("tifffile",))
        return SliceSource(path, sorted(slices))
    suffix = suffix_of(path.name)
    if package := _PACKAGES.get(suffix):
        require("volumes", (package,))
    if suffix in TIF_SUFFIXES:
        return TifSource(path)
    if suffix == ".npy":
        return NpySource(path)
    if suffix == ".npz":
        return open_npz(path, role)
    if suffix in NIFTI_SUFFIXES:
        return open_nifti(path)
    if suffix in NRRD_SUFFIXES:
        return open_nrrd(path)
    if suffix in HDF5_SUFFIXES:
        return open_hdf5(path, role)
    raise UsageError(f"{path}: its format is unknown: known are {KNOWN}")
