"""Packs a set of images: one packed set, or one set of tar shards, per split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from flatout.errors import StagingFailed, UsageError
from flatout.formats.image_names import EXTENSIONS
from flatout.stage.destination.lock import destination_lock
from flatout.stage.destination.overlap import refuse_overlap
from flatout.stage.destination.safe_paths import refuse_file
from flatout.stage.packing.split_packer import PackPlan, SplitPacker
from flatout.stage.pictures import PictureChange
from flatout.stage.progress import Progress
from flatout.stage.selection import Selection, chosen_classes, selected, with_splits
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.transfer import Options

CONCURRENCY = 32


@dataclass(frozen=True, kw_only=True)
class PackSummary:
    """The result of packing; names as in ``Summary``."""

    source: str
    destination: str
    splits: tuple[str, ...]  # "": the set has none
    packed: int  # images written now
    packed_bytes: int
    kept: int  # images in parts that an earlier packing wrote
    changed: int  # images that were scaled or re-encoded
    n_dropped: int  # images that cannot be decoded; left out
    dropped_examples: tuple[str, ...]
    verified: dict[str, int]  # images written now, by what of the source's they were compared with
    classes: int
    shards: bool  # tar shards, not the packed layout
    duration_s: float
    images_per_s: float

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def pack(
    source: Source,
    destination: Path,
    selection: Selection,
    options: Options | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    report: Callable[[str], None] = lambda line: None,
    shard_bytes: int | None = None,
) -> PackSummary:
    """Write a packed set per split, images in an order drawn by the selection's seed; labels are the class folders.

    If no splits are chosen and all folders of the source are named like splits, they are the splits.

    A split appears once complete. After an interruption the same packing resumes: whole parts (shards) are not read
    again, nor are whole splits.

    Args:
        source: where the images are.
        destination: folder; made if it does not exist.
        selection: which images.
        options: how; pruning is not supported.
        watch: called a few times per second.
        report: called with each progress message.
        shard_bytes: write tar shards of about this size instead of the packed layout; None: the packed layout.

    Raises:
        UsageError: pruning is requested, nothing is selected, another packed set is there, or the disk is too small.
        StagingFailed: an image could not be read.
    """
    options = options or Options()
    if options.prune:
        raise UsageError("--prune: a packed set is written whole: remove its folder, and pack again")
    refuse_file(destination)
    images, splits, names = _list_images(source, selection, report)
    destination.mkdir(parents=True, exist_ok=True)
    refuse_overlap(source, destination)
    progress = Progress(listed=len(images), listed_bytes=sum(obj.size for obj in images), listing_done=True)
    progress.concurrency = options.concurrency or CONCURRENCY
    plan = PackPlan(
        source=source,
        destination=destination,
        splits=splits,
        classes=tuple(names or sorted({label for obj in images if (label := _label(obj.key, splits)) is not None})),
        seed=selection.seed,
        change=options.change or PictureChange(),
        min_free=options.min_free,
        shard_bytes=shard_bytes,
    )
    with destination_lock(destination, options.wait, report):
        for split in splits:
            own = sorted(obj for obj in images if not split or obj.key.startswith(f"{split}/"))
            labels = {obj.key: _label(obj.key, splits) for obj in own}
            packer = SplitPacker(plan, split, own, labels)
            if packer.is_done():
                for obj in own:
                    progress.keep(obj.size)
                report(f"{packer.target}: packed already, from the same images in the same way")
            else:
                packer.pack(progress, watch)
    return PackSummary(
        source=source.address,
        destination=str(destination),
        splits=splits,
        packed=progress.copied,
        packed_bytes=progress.copied_bytes,
        kept=progress.kept,
        changed=progress.changed,
        n_dropped=progress.n_dropped,
        dropped_examples=tuple(progress.dropped_examples),
        verified={source.unverified: progress.copied} if progress.copied else {},
        classes=len(plan.classes),
        shards=shard_bytes is not None,
        duration_s=progress.duration_s,
        images_per_s=progress.copied / max(progress.duration_s, 1e-9),
    )


def _list_images(
    source: Source, selection: Selection, report: Callable[[str], None]
) -> tuple[list[ObjectInfo], tuple[str, ...], list[str] | None]:
    """The selected images, their splits (one empty name if there are none), and the chosen classes (None: all).

    Raises:
        UsageError: there are no images.
        StagingFailed: the source cannot be listed completely.
    """
    others: list[str] = []
    chosen_splits = selection.splits
    try:
        selection = with_splits(source, selection, report)
        names = chosen_classes(source, selection)
        images = _images(selected(source, selection, names), others)
    except Failure as error:
        raise StagingFailed(f"{source.address}: cannot be listed: {error}") from None
    if source.unlisted:
        raise StagingFailed(f"{source.unlisted[0]}: nothing is packed while a folder of the set cannot be read")
    if not images:
        raise UsageError(f"{source.address}: no images are selected there")
    if source.skipped.count:
        for why, left_out in source.skipped.reasons.items():
            report(f"{left_out.count:,} left out, such as {left_out.example}: {why}")
    if others:
        report(f"{len(others):,} other than images left out, such as {others[0]}")
    splits = chosen_splits or tuple(_with_images(selection.splits, images))
    return images, splits or ("",), names


def _images(objects: Iterable[ObjectInfo], others: list[str]) -> list[ObjectInfo]:
    """The images among objects; the keys of the others are added to ``others``."""
    images = []
    for obj in objects:
        if obj.key.lower().endswith(EXTENSIONS):
            images.append(obj)
        else:
            others.append(obj.key)
    return images


def _with_images(splits: tuple[str, ...], images: list[ObjectInfo]) -> Iterator[str]:
    for split in splits:
        if any(image.key.startswith(f"{split}/") for image in images):
            yield split


def _label(key: str, splits: tuple[str, ...]) -> str | None:
    """The class folder of a key; None if it is in none."""
    parts = key.split("/")
    if splits != ("",):
        parts = parts[1:]
    return parts[0] if len(parts) > 1 else None
