"""What a staging of volumes is going to do: its cases, checked as far as their headers tell, and their layouts."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from flatout.errors import UsageError
from flatout.extras import require
from flatout.formats.volume_chunks import Triple
from flatout.volumes.cases import IMAGE, LABEL, Case, find_cases
from flatout.volumes.layout import NONE, ZSTD, Layout
from flatout.volumes.shard_files import chunks_of, encode_chunk
from flatout.volumes.slabs import ImageSlabs, LabelSlabs, Slabs
from flatout.volumes.sources.base import ArraySource
from flatout.volumes.sources.open import holds_labels, is_zarr, open_source

AUTO = "auto"
COMPRESSIONS = (AUTO, NONE, ZSTD)
# Unpacking zstd costs three to four times the reading: worth it where it saves a third of the disk.
WORTH_PACKING = 1 / 0.7
_SPACING_TOLERANCE = 1e-3
_MOST_APART, _LEAST_APART_MM = 0.5, 1e-3  # of a voxel's edge, and at least: headers are rounded
_SAMPLED_SLABS = 3
# Path or address, bytes, and what changes with its content: ns of the last change, or a store's version.
SourceFile = tuple[str, int, int | str]


@dataclass(frozen=True, kw_only=True)
class VolumeOptions:
    """Options of a staging of volumes.

    Attributes:
        patch: the training's, voxels along z, y, x: chunks are a quarter of it.
        ignore: the labels' value of voxels without a label; None: all have one.
        classes: labels are 0 to this less one; None: any up to 255.
        compression: of images and labels; ``auto``: zstd where a sample shows that it saves 30%.
        memory_bytes: for slabs of the source.
        min_free: bytes to leave free at the destination; None: as other stagings do.
        wait: for another staging to the same destination.
    """

    patch: Triple = (128, 128, 128)
    ignore: int | None = None
    classes: int | None = None
    compression: str = AUTO
    memory_bytes: int = 512 << 20
    min_free: int | None = None
    wait: bool = False


@dataclass(frozen=True)
class Planned:
    """One array of a case.

    Attributes:
        files: of the source.
    """

    root: Path
    case: Case
    role: str
    layout: Layout
    options: VolumeOptions
    files: tuple[SourceFile, ...]

    @property
    def folder(self) -> str:
        """Name of the array below the destination."""
        return f"{self.case.id}/{self.role}.zarr"

    @property
    def voxels(self) -> int:
        """Of the volume."""
        return math.prod(self.layout.shape)

    @contextlib.contextmanager
    def slabs(self) -> Iterator[Slabs]:
        """The source, open."""
        with contextlib.ExitStack() as closing:
            yield _open_slabs(self.root, self.case, self.role, self.options, closing)

    def source_note(self) -> dict[str, object]:
        """What the array is made from: files with sizes and times, and the options that change voxels."""
        label = {"ignore": self.options.ignore, "classes": self.options.classes} if self.role == LABEL else {}
        return {"files": self.files, **label}


def plan(root: Path, options: VolumeOptions) -> Iterator[Planned]:
    """Open the volumes below ``root``, or the one that it is, a case after the other.

    Raises:
        UsageError: nothing is there, files do not fit together, or one cannot be read.
    """
    for case in local_cases(root):
        yield from plan_case(root, case, options)


def local_cases(root: Path) -> list[Case]:
    """The cases below a folder, or the one that a file is."""
    if root.is_file() or (root.is_dir() and is_zarr(root)):
        cases = [Case(_stem(root), ".")]
    elif root.is_dir():
        try:
            cases = find_cases(names_below(root), lambda name: one_page(root / name, str(root / name)))
        except UsageError as error:
            raise UsageError(f"{root}: {error}") from None
    else:
        raise UsageError(f"{root}: it does not exist: give a folder or a file")
    return [with_own_labels(root, case) for case in cases]


def plan_case(root: Path, case: Case, options: VolumeOptions) -> Iterator[Planned]:
    """Open the volumes of one case below ``root``.

    Raises:
        UsageError: they do not fit together, or one cannot be read.
    """
    # Open at the same time, so that they can be compared; closed before the next case, of which there may be thousands.
    with contextlib.ExitStack() as closing:
        slabs = {IMAGE: _open_slabs(root, case, IMAGE, options, closing)}
        if case.label is not None:
            slabs[LABEL] = labels = _open_slabs(root, case, LABEL, options, closing)
            assert isinstance(labels, LabelSlabs)
            for other in (labels.source, labels.mask):
                if other is not None:
                    _compare(slabs[IMAGE].source, other)
        found = [_planned(root, case, role, opened, options) for role, opened in slabs.items()]
    yield from found


def _open_slabs(
    root: Path, case: Case, role: str, options: VolumeOptions, closing: contextlib.ExitStack
) -> ImageSlabs | LabelSlabs:
    def opened(name: str, of: str) -> ArraySource:
        source = open_source(root / name, of)
        closing.callback(source.close)
        return source

    if role == IMAGE:
        return ImageSlabs(opened(case.image, IMAGE))
    assert case.label is not None
    mask = opened(case.ignore, LABEL) if case.ignore else None
    return LabelSlabs(opened(case.label, LABEL), mask, options.ignore, options.classes)


def _compare(image: ArraySource, label: ArraySource) -> None:
    if image.shape != label.shape:
        raise UsageError(
            f"{label.path}: its shape is {label.shape} (z, y, x), its image's {image.shape} ({image.path}): give the"
            " labels of this image"
        )
    known = image.says_spacing and label.says_spacing
    if known and not np.allclose(image.spacing, label.spacing, rtol=_SPACING_TOLERANCE):
        raise UsageError(
            f"{label.path}: its voxels are {label.spacing} apart, its image's {image.spacing}: give the labels of this"
            " image, or correct the spacing in the header of one of them"
        )
    apart = _apart_mm(image, label)
    if apart > max(_MOST_APART * min(image.spacing), _LEAST_APART_MM):
        raise UsageError(
            f"{label.path}: by its header, its voxels lie up to {apart:.3g} mm from those of its image ({image.path}):"
            " they are turned, mirrored or moved: bring them onto the grid of the image, or correct one header"
        )


def _apart_mm(image: ArraySource, label: ArraySource) -> float:
    """Largest distance of the same corner of two volumes of one shape; 0.0 where one does not say where it is."""
    if image.affine is None or label.affine is None:
        return 0.0
    corners = np.array([[x, y, z, 1] for z, y, x in itertools.product(*((0, size - 1) for size in image.shape))])
    return float(np.linalg.norm((corners @ (image.affine - label.affine).T)[:, :3], axis=1).max())


def _planned(root: Path, case: Case, role: str, slabs: ImageSlabs | LabelSlabs, options: VolumeOptions) -> Planned:
    source = slabs.source
    layout = Layout.of(source.shape, slabs.dtype, options.patch, spacing=source.spacing)
    if options.compression != AUTO:
        layout = replace(layout, codec=options.compression)
    mask = slabs.mask if isinstance(slabs, LabelSlabs) else None
    files = [*_files(source), *(_files(mask) if mask is not None else ())]
    return Planned(root, case, role, layout, options, tuple(files))


def _files(source: ArraySource) -> Iterator[SourceFile]:
    for path in source.files():
        for file in [path] if path.is_file() else sorted(below for below in path.rglob("*") if below.is_file()):
            facts = file.stat()
            yield str(file), facts.st_size, facts.st_mtime_ns


def chosen_codec(slabs: Slabs, layout: Layout, options: VolumeOptions) -> str:
    """How chunks are packed: by the ratio of three slabs, where it was not said."""
    if options.compression != AUTO:
        return options.compression
    ratio, _ = packing_ratio(slabs, layout)
    return ZSTD if ratio > WORTH_PACKING else NONE


def packing_ratio(slabs: Slabs, layout: Layout) -> tuple[float, int]:
    """Bytes plain by packed with zstd, of a row of chunks of three slabs, and the voxels that had to be read for it."""
    packed_layout = replace(layout, codec=ZSTD)
    depth, height, width = layout.shape
    plain = packed = read = 0
    for at in range(_SAMPLED_SLABS):
        share = (at + 1) / (_SAMPLED_SLABS + 1)
        # Whole chunks, from the origin of one.
        z, y = (int(size * share) // edge * edge for size, edge in zip((depth, height), layout.chunk, strict=False))
        slab = slabs.read(z, min(z + layout.chunk[0], depth), y, min(y + layout.chunk[1], height))
        chunks = chunks_of(layout, slab)
        plain += chunks.nbytes
        read += slab.size if slabs.source.crops else len(slab) * height * width
        packed += sum(len(encode_chunk(packed_layout, chunks[place])) for place in np.ndindex(*chunks.shape[:3]))
    return plain / max(packed, 1), read


def names_below(root: Path) -> Iterator[str]:
    """Names of all files below a folder, with forward slashes."""
    for folder, _, files in os.walk(root, followlinks=True):
        below = os.path.relpath(folder, root)
        yield from files if below == "." else (f"{below}/{name}" for name in files)


def one_page(tif: Path | IO[bytes], name: str) -> bool:
    """True if a tif is one slice.

    Raises:
        UsageError: it cannot be read.
    """
    require("volumes", ("tifffile",))
    import tifffile

    try:
        with tifffile.TiffFile(tif) as file:
            shape = file.series[0].shape
            # A slice in colours is refused when it is read.
            planar = len([size for size in shape if size > 1]) <= 2 or file.pages.first.samplesperpixel > 1
            return len(file.pages) == 1 and planar
    except (OSError, ValueError, tifffile.TiffFileError) as error:
        raise UsageError(f"{name}: it cannot be read as tif ({error}): get it again") from None


def with_own_labels(root: Path, case: Case) -> Case:
    """The case with the labels in the file of its image, if there are any."""
    path = root / case.image if case.image != "." else root
    if case.label is None and path.is_file() and holds_labels(path):
        return replace(case, label=case.image)
    return case


def _stem(path: Path) -> str:
    return path.resolve().name.split(".")[0] or "volume"
