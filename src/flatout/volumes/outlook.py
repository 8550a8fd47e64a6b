"""What a staging of volumes would read, write and take, from their headers and a sample."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from flatout.formats.volume_chunks import Triple, touched_ratio
from flatout.stage.destination.space import free_bytes
from flatout.volumes.cases import IMAGE, LABEL, Case
from flatout.volumes.layout import NONE, ZSTD
from flatout.volumes.plan import (
    AUTO,
    WORTH_PACKING,
    Planned,
    VolumeOptions,
    packing_ratio,
    plan,
    plan_case,
    with_own_labels,
)
from flatout.volumes.statistics import saved_bytes
from flatout.volumes.stored_cases import StoredCases

MOST_FETCHED = 256 << 20  # bytes, for a dry run


@dataclass(frozen=True, kw_only=True)
class VolumeOutlook:
    """The prediction of a dry run."""

    source: str
    n_cases: int
    n_labelled: int
    source_bytes: int
    voxels: int | None  # None, here and below: nothing was tried
    staged_bytes: int | None  # predicted from the sample's ratios
    free_bytes: int
    fits: bool | None
    codecs: dict[str, int]
    patch: tuple[int, int, int]
    chunk: tuple[int, int, int] | None
    read_per_patch_byte: float | None
    predicted_s: float | None
    tried_share: float  # of the voxels
    fetched_bytes: int = 0  # of a case in a store that was tried

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def look_ahead(root: Path | StoredCases, destination: Path, options: VolumeOptions) -> VolumeOutlook:
    """Read headers and a few slabs; writes nothing that stays.

    Of cases in a store the smallest is fetched, if it has at most ``MOST_FETCHED`` bytes; the others are predicted from
    it by their bytes.

    Raises:
        UsageError: as a staging would, as far as the headers tell.
    """
    existing = next(folder for folder in (destination.absolute(), *destination.absolute().parents) if folder.exists())
    free = free_bytes(existing, options.min_free)
    sample: _Sample | None
    if isinstance(root, Path):
        planned = list(plan(root, options))
        sample, source_bytes, scale = _sampled(planned, options), _source_bytes(planned), 1.0
        n_cases, n_labelled = (sum(part.role == role for part in planned) for role in (IMAGE, LABEL))
    else:
        sizes = {case: root.n_bytes(case) for case in root.cases}
        source_bytes, smallest = sum(sizes.values()), min(root.cases, key=lambda case: sizes[case])
        sample = _fetched(root, smallest, existing, options) if sizes[smallest] <= MOST_FETCHED else None
        scale = source_bytes / max(sizes[smallest], 1)
        n_cases, n_labelled = len(sizes), sum(case.label is not None for case in sizes)
    staged = round(sample.staged_bytes * scale) if sample else None
    chunk = sample.chunk if sample else None
    return VolumeOutlook(
        source=str(root) if isinstance(root, Path) else root.address,
        n_cases=n_cases,
        n_labelled=n_labelled,
        source_bytes=source_bytes,
        voxels=round(sample.image_voxels * scale) if sample else None,
        staged_bytes=staged,
        free_bytes=free,
        fits=staged <= free if staged is not None else None,
        codecs=sample.codecs if sample and scale == 1 else {},
        patch=options.patch,
        chunk=chunk,
        read_per_patch_byte=touched_ratio(options.patch, chunk) if chunk else None,
        predicted_s=sample.seconds * scale if sample and sample.tried else None,
        tried_share=sample.tried / sample.voxels / scale if sample else 0.0,
        fetched_bytes=0 if isinstance(root, Path) or not sample else sizes[smallest],
    )


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """What was tried of some arrays; ``seconds`` are predicted for all of them."""

    image_voxels: int
    voxels: int
    staged_bytes: int
    codecs: dict[str, int]
    chunk: Triple
    seconds: float
    tried: int  # voxels


def _sampled(planned: list[Planned], options: VolumeOptions) -> _Sample:
    staged, tried, seconds = 0, 0, 0.0
    codecs: dict[str, int] = {}
    for part in planned:
        began = time.monotonic()
        with part.slabs() as slabs:
            ratio, sampled = packing_ratio(slabs, part.layout)
        seconds += time.monotonic() - began
        tried += sampled
        codec = options.compression if options.compression != AUTO else (ZSTD if ratio > WORTH_PACKING else NONE)
        codecs[codec] = codecs.get(codec, 0) + 1
        plain = part.voxels * part.layout.dtype.itemsize
        staged += int(plain / ratio) if codec == ZSTD else part.layout.unpacked_bytes
        staged += saved_bytes(part.layout.dtype, part.voxels) if part.role == IMAGE else 0
    voxels = sum(part.voxels for part in planned)
    return _Sample(
        image_voxels=sum(part.voxels for part in planned if part.role == IMAGE),
        voxels=voxels,
        staged_bytes=staged,
        codecs=codecs,
        chunk=planned[0].layout.chunk,
        seconds=seconds * voxels / tried if tried else 0.0,
        tried=tried,
    )


def _fetched(source: StoredCases, case: Case, near: Path, options: VolumeOptions) -> _Sample:
    with tempfile.TemporaryDirectory(prefix=".flatout-look-", dir=near) as folder:
        began = time.monotonic()
        source.fetch(case, Path(folder, "case"), lambda progress: None, lambda line: None)
        seconds = time.monotonic() - began
        root = Path(folder, "case")
        sample = _sampled(list(plan_case(root, with_own_labels(root, case), options)), options)
    return replace(sample, seconds=sample.seconds + seconds)


def _source_bytes(planned: list[Planned]) -> int:
    sizes = {path: size for part in planned for path, size, _ in part.files}  # a file may hold image and labels
    return sum(sizes.values())
