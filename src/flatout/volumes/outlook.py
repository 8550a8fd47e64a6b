"""What a staging of volumes would read, write and take, from their headers and a sample."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from flatout.stage.destination.space import free_bytes
from flatout.volumes.cases import IMAGE, LABEL
from flatout.volumes.layout import NONE, ZSTD, touched_ratio
from flatout.volumes.plan import AUTO, WORTH_PACKING, Planned, VolumeOptions, packing_ratio, plan


@dataclass(frozen=True, kw_only=True)
class VolumeOutlook:
    """The prediction of a dry run."""

    source: str
    n_cases: int
    n_labelled: int
    source_bytes: int
    voxels: int
    staged_bytes: int  # predicted from the sample's ratios
    free_bytes: int
    fits: bool
    codecs: dict[str, int]
    patch: tuple[int, int, int]
    chunk: tuple[int, int, int]
    read_per_patch_byte: float
    predicted_s: float | None  # None: nothing was tried
    tried_share: float  # of the voxels

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def look_ahead(root: Path, destination: Path, options: VolumeOptions) -> VolumeOutlook:
    """Read headers and a few slabs; writes nothing.

    Raises:
        UsageError: as a staging would, as far as the headers tell.
    """
    planned = list(plan(root, options))
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
    existing = next(folder for folder in (destination.absolute(), *destination.absolute().parents) if folder.exists())
    free = free_bytes(existing, options.min_free)
    voxels = sum(part.voxels for part in planned)
    chunk = planned[0].layout.chunk
    return VolumeOutlook(
        source=str(root),
        n_cases=sum(part.role == IMAGE for part in planned),
        n_labelled=sum(part.role == LABEL for part in planned),
        source_bytes=_source_bytes(planned),
        voxels=sum(part.voxels for part in planned if part.role == IMAGE),
        staged_bytes=staged,
        free_bytes=free,
        fits=staged <= free,
        codecs=codecs,
        patch=options.patch,
        chunk=chunk,
        read_per_patch_byte=touched_ratio(options.patch, chunk),
        predicted_s=seconds * voxels / tried if tried else None,
        tried_share=tried / voxels,
    )


def _source_bytes(planned: list[Planned]) -> int:
    sizes = {path: size for part in planned for path, size, _ in part.files}  # a file may hold image and labels
    return sum(sizes.values())
