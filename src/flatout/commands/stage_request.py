"""The arguments of ``flatout stage``, and their translation to options of staging."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flatout.errors import UsageError
from flatout.units import parse_size

if TYPE_CHECKING:
    from flatout.stage.selection import Selection
    from flatout.stage.sources.base import Source, StoreOptions
    from flatout.stage.transfer import Options
    from flatout.volumes.plan import VolumeOptions


SHARD_SIZE = "1GiB"
MEMORY = "512MiB"
_LARGEST_PATCH = 4096  # voxels along an edge


@dataclass(frozen=True, kw_only=True)
class StageRequest:
    """The arguments and options of the command, one field each; ``stage_options`` documents them."""

    address: str
    destination: Path
    splits: str | None
    classes: int | None
    classes_from: Path | None
    per_class: int | None
    sample: str | None
    seed: int
    include: list[str] | None
    exclude: list[str] | None
    dry_run: bool
    check: bool
    pack: bool
    tar: bool
    shard_size: str | None
    volumes: bool
    patch: str
    ignore: int | None
    compress: str
    memory: str | None
    cluster: str | None
    replicate: str
    unpack: bool
    short_side: int | None
    quality: int
    baseline: bool
    drop_corrupt: bool
    prune: bool
    prune_most: bool
    overwrite: bool
    concurrency: int | None
    wait: bool
    min_free: str | None
    endpoint: str | None
    region: str | None
    profile: str | None
    anonymous: bool
    as_json: bool
    as_html: bool
    output: Path | None
    force: bool
    quiet: bool

    def refuse_contradictions(self) -> None:
        """Raise UsageError for options that exclude each other."""
        if self.patch != "128" or self.ignore is not None or self.compress != "auto" or self.memory is not None:
            raise UsageError("--patch, --ignore, --compress and --memory are of volumes: give --volumes with them")
        if self.pack + self.tar + self.unpack > 1:
            raise UsageError("--pack, --tar and --unpack exclude each other: give one of them")
        if self.classes is not None and self.classes_from is not None:
            raise UsageError("--classes and --classes-from exclude each other: give one of them")
        if self.shard_size is not None:
            parse_size(self.shard_size, option="--shard-size")
            if not self.tar:
                raise UsageError("--shard-size is the size of tar shards: give --tar, or leave it out")
        if self.min_free is not None:
            parse_size(self.min_free, option="--min-free")
        if not self.address:
            raise UsageError("SOURCE is empty: give s3://bucket/prefix, https://…, or a folder (. for this one)")

    def page(self) -> Path | None:
        """The file of --html; None: none is wanted.

        Raises:
            UsageError: it could not be written, or there is nothing to show.
        """
        from flatout.report.writing import page_file

        without = {"--check": self.check, "--dry-run": self.dry_run, "--cluster": self.cluster is not None}
        for option, given in without.items():
            if given and self.as_html:
                raise UsageError(f"--html shows a copy over time: it does not go with {option}: leave one of them out")
        return page_file(self.output, "stage.html", as_json=self.as_json, as_html=self.as_html, force=self.force)

    def selection(self) -> Selection:
        """The objects to stage."""
        from flatout.stage.selection import Selection, read_class_list

        return Selection(
            splits=tuple(part for part in (self.splits or "").split(",") if part),
            classes=self.classes,
            seed=self.seed,
            class_names=read_class_list(self.classes_from) if self.classes_from else (),
            per_class=self.per_class,
            include=tuple(self.include or ()),
            exclude=tuple(self.exclude or ()),
            share=_share(self.sample),
        )

    def options(self) -> Options:
        """Options of the staging."""
        from flatout.stage.pictures import PictureChange
        from flatout.stage.transfer import Options

        change = PictureChange(
            short_side=self.short_side, quality=self.quality, baseline=self.baseline, drop_corrupt=self.drop_corrupt
        )
        return Options(
            concurrency=self.concurrency,
            wait=self.wait,
            prune=self.prune or self.prune_most,
            prune_most=self.prune_most,
            overwrite=self.overwrite,
            min_free=parse_size(self.min_free, option="--min-free") if self.min_free else None,
            change=change if change.name else None,
            unpack=self.unpack,
        )

    def volume_options(self) -> VolumeOptions:
        """Options of a staging of volumes; raises UsageError for options that it does not have."""
        from flatout.volumes.plan import COMPRESSIONS, VolumeOptions

        files = ("splits", "classes_from", "per_class", "sample", "include", "exclude", "unpack", "short_side")
        more = ("baseline", "drop_corrupt", "pack", "tar", "shard_size", "prune", "prune_most", "overwrite", "cluster")
        for name in (*files, *more):
            if getattr(self, name):
                raise UsageError(f"--{name.replace('_', '-')} is not of volumes: leave it out, or --volumes")
        if self.compress not in COMPRESSIONS:
            raise UsageError(f"--compress {self.compress}: give {', '.join(COMPRESSIONS)}")
        return VolumeOptions(
            patch=_patch(self.patch),
            ignore=self.ignore,
            classes=self.classes,
            compression=self.compress,
            memory_bytes=parse_size(self.memory or MEMORY, option="--memory"),
            min_free=parse_size(self.min_free, option="--min-free") if self.min_free else None,
            wait=self.wait,
        )

    def store_options(self) -> StoreOptions:
        """Options for reaching the source."""
        from flatout.stage.sources.base import StoreOptions

        return StoreOptions(self.endpoint, self.region, self.profile, self.anonymous)

    def open_source(self) -> Source:
        """The source; raises UsageError if it cannot be used, or shares files with the destination."""
        from flatout.stage.destination.overlap import refuse_overlap
        from flatout.stage.sources.open import open_source

        source = open_source(self.address, self.store_options())
        refuse_overlap(source, self.destination)
        return source

    def shard_bytes(self) -> int | None:
        """Size of tar shards; None: no shards."""
        return parse_size(self.shard_size or SHARD_SIZE, option="--shard-size") if self.tar else None


def _patch(text: str) -> tuple[int, int, int]:
    try:
        edges = [int(part) for part in text.split(",")]
    except ValueError:
        edges = []
    if len(edges) not in (1, 3) or not all(1 <= edge <= _LARGEST_PATCH for edge in edges):
        raise UsageError(f"--patch {text}: give one edge in voxels, such as 128, or three along z,y,x: 64,128,128")
    z, y, x = edges * 3 if len(edges) == 1 else edges
    return z, y, x


def _share(text: str | None) -> float:
    if text is None:
        return 1.0
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text}: give a share above 0 and up to 100%, such as 5%")
    return share
