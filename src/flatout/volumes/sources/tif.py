"""A volume in one tif file, and a folder with a tif file for each slice."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.volumes.sources.base import ArraySource, three_axes

SUFFIXES = (".tif", ".tiff")
_NUMBER = re.compile(r"(\d+)")


class _Complaints(logging.Handler):
    """What tifffile only logs: with a chain of pages that is broken it goes on with fewer pages."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def _clear(path: Path) -> Iterator[None]:
    """Turn what tifffile and its codecs raise or log into one line."""
    complaints, log = _Complaints(), logging.getLogger("tifffile")
    propagates, log.propagate = log.propagate, False
    log.addHandler(complaints)
    try:
        yield
        why = complaints.said[0] if complaints.said else ""
    except UsageError:
        raise
    except Exception as error:  # each codec has errors of its own
        why = str(error) or type(error).__name__
    finally:
        log.removeHandler(complaints)
        log.propagate = propagates
    if why:
        (first, *_) = why.strip().split("\n")
        raise UsageError(f"{path}: it cannot be read as tif ({first}): get it again, or save it unpacked")


class TifSource(ArraySource):
    """A tif file with all slices."""

    def __init__(self, path: Path) -> None:
        import tifffile

        self.path = path
        with ExitStack() as closing:
            with _clear(path):
                self._file = tifffile.TiffFile(path)
                closing.callback(self._file.close)
                self._look()
            closing.pop_all()

    def _look(self) -> None:
        path, series = self.path, self._file.series
        first = series[0]
        if len(series) > 1 and len(series[1].shape) >= 2:  # overviews of one picture are levels, not series
            raise UsageError(f"{path}: its pages have shapes {first.shape} and {series[1].shape}: one volume a file")
        if first.keyframe.samplesperpixel != 1:
            raise UsageError(f"{path}: it has {first.keyframe.samplesperpixel} colours: save it in grey")
        axes = first.axes.translate(str.maketrans("IQ", "ZZ"))
        shape = first.shape if len(first.shape) > 2 else (1, *first.shape)
        self.shape, index = three_axes(path, shape, axes if len(axes) == len(shape) else "")
        self.dtype = np.dtype(first.dtype).newbyteorder(self._file.byteorder)
        self._pages = first.pages
        self._mapped: npt.NDArray[Any] | None = None
        if first.dataoffset is not None:
            needed, there = first.dataoffset + first.size * self.dtype.itemsize, path.stat().st_size
            if needed > there:
                raise UsageError(f"{path}: it is cut off: {there:,} of {needed:,} bytes: get it again")
            self._mapped = np.memmap(path, self.dtype, "r", first.dataoffset, shape)[index]
            return
        self.crops = False
        if len(self._pages) != self.shape[0]:
            raise UsageError(f"{path}: {len(self._pages)} pages for {self.shape[0]} slices: save one page a slice")

    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1, of each the rows y0 to y1; packed pages are unpacked whole."""
        if self._mapped is not None:
            return np.asarray(self._mapped[z0:z1, y0:y1])
        out = np.empty((z1 - z0, y1 - y0, self.shape[2]), self.dtype.newbyteorder("="))
        for z in range(z0, z1):
            with _clear(self.path):
                page = self._pages[z]
                _refuse_cut_off(self.path, page, f"page {z}")
                out[z - z0] = page.asarray()[y0:y1]
        return out

    def close(self) -> None:
        """Close the file."""
        self._mapped = None
        self._file.close()


class SliceSource(ArraySource):
    """A folder with a picture for each slice, in the order of the numbers in their names."""

    crops = False

    def __init__(self, folder: Path, slices: list[Path]) -> None:
        self.path = folder
        self._slices = in_order(folder, slices)
        plane = self._plane(0)
        self.shape = (len(self._slices), plane.shape[0], plane.shape[1])
        self.dtype = plane.dtype

    def read(self, z0: int, z1: int, y0: int, y1: int) -> npt.NDArray[Any]:
        """Planes z0 to z1, of each the rows y0 to y1; each file is read whole."""
        out = np.empty((z1 - z0, y1 - y0, self.shape[2]), self.dtype)
        for z in range(z0, z1):
            plane = self._plane(z)
            if plane.shape != self.shape[1:] or plane.dtype != self.dtype:
                raise UsageError(
                    f"{self._slices[z]}: it is {plane.dtype} of {plane.shape}, the first slice {self.dtype} of"
                    f" {self.shape[1:]}: one folder is one volume"
                )
            out[z - z0] = plane[y0:y1]
        return out

    def files(self) -> list[Path]:
        """The slices."""
        return self._slices

    def _plane(self, z: int) -> npt.NDArray[Any]:
        import tifffile

        path = self._slices[z]
        with _clear(path), tifffile.TiffFile(path) as file:
            if len(file.pages) != 1:
                raise UsageError(f"{path}: it has {len(file.pages)} pages beside other files: a slice has one")
            page = file.pages[0]
            _refuse_cut_off(path, page, "the picture")
            plane = page.asarray()
            if plane.ndim != 2:
                raise UsageError(f"{path}: a slice has two axes, this has the shape {plane.shape}: save it in grey")
            return np.asarray(plane)


def _refuse_cut_off(path: Path, page: Any, what: str) -> None:
    """Tifffile fills parts that are missing with zeros, without a word."""
    end = max((start + size for start, size in zip(page.dataoffsets, page.databytecounts, strict=True)), default=0)
    there = page.parent.filehandle.size
    if end > there:
        raise UsageError(f"{path}: it is cut off: {what} ends at byte {end:,} of {there:,}: get it again")


def in_order(folder: Path, slices: list[Path]) -> list[Path]:
    """Sort slices by the number in their names.

    Raises:
        UsageError: a number is missing or double, or the names differ in more than one number.
    """
    parts = {path: _NUMBER.split(path.stem) for path in slices}
    first = next(iter(parts.values()))
    for path, found in parts.items():
        if len(found) != len(first) or found[::2] != first[::2]:
            raise UsageError(f"{path}: its name is unlike {slices[0].name}: a folder of slices holds one volume")
    varying = [at for at in range(1, len(first), 2) if len({int(found[at]) for found in parts.values()}) > 1]
    if len(varying) > 1:
        raise UsageError(
            f"{folder}: names such as {slices[0].name} and {slices[-1].name} differ in {len(varying)} numbers: the"
            " order of the slices is not clear: keep one number that counts them"
        )
    if not varying and len(slices) > 1:
        raise UsageError(f"{folder}: {slices[0].name} and {slices[1].name} have no number that counts the slices")
    numbers = {path: int(found[varying[0]]) if varying else 0 for path, found in parts.items()}
    ordered = sorted(slices, key=lambda path: numbers[path])
    steps = [numbers[b] - numbers[a] for a, b in itertools.pairwise(ordered)]
    step = min((found for found in steps if found), default=1)
    for at, found_step in enumerate(steps):
        before, after = ordered[at].name, ordered[at + 1].name
        if found_step == 0:
            raise UsageError(f"{folder}: {before} and {after} are the same slice: remove one of them")
        if found_step != step:
            missing = numbers[ordered[at]] + step
            raise UsageError(f"{folder}: slice {missing} is missing, between {before} and {after}: get it")
    return ordered
