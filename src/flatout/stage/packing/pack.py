"""Bring a set of images as one packed set a split: a few large files that a training reads without opening any."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from flatout.atomic_file import write_atomically
from flatout.errors import DiskFull, StagingFailed, UsageError
from flatout.formats.image_names import EXTENSIONS
from flatout.formats.packed import PackedWriter
from flatout.formats.tar_shards import TarWriter
from flatout.stage.destination.lock import destination_lock
from flatout.stage.destination.overlap import refuse_overlap
from flatout.stage.destination.safe_paths import state_folder
from flatout.stage.destination.space import check_room
from flatout.stage.packing.journal import plan_of
from flatout.stage.packing.split import LAST, Image, Writer, write_split
from flatout.stage.pictures import Corrupt, PictureChange
from flatout.stage.progress import Progress
from flatout.stage.selection import Selection, chosen_classes, selected, with_splits
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.transfer import Options

AT_ONCE = 32
_OF_PACKED = re.compile(r"part-[0-9]{5,}\.bin|index\.npz|keys\.txt|packed\.json")
_OF_SHARDS = re.compile(r"shard-[0-9]{6,}\.tar|index\.json|keys\.txt|classes\.json")


@dataclass(frozen=True, kw_only=True)
class PackSummary:
    """What was packed."""

    source: str
    destination: str
    splits: tuple[str, ...]  # "": the set has none
    images: int  # written now
    kept: int  # written by an earlier packing
    bytes: int
    classes: int
    shards: bool  # tar shards, not the packed layout
    changed: int  # images that were made smaller, or encoded again
    dropped: int  # images that cannot be decoded; they were left out
    dropped_names: tuple[str, ...]
    seconds: float
    images_per_s: float

    def as_json(self) -> dict[str, object]:
        """As plain values."""
        return asdict(self)


def pack(
    origin: Source,
    destination: Path,
    selection: Selection,
    options: Options | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    report: Callable[[str], None] = lambda line: None,
    shard_bytes: int | None = None,
) -> PackSummary:
    """Write a packed set a split, images in an order drawn by the selection's seed; labels are the class folders.

    Where no splits are chosen, and all folders of the source have names of splits, they are the splits.

    A split appears at once when it is whole. After an interruption the same packing goes on: parts (shards) that are
    whole are not read again, nor are splits.

    Args:
        origin: where the images are.
        destination: folder; made if it does not exist.
        selection: what of them.
        options: how; what is packed is never pruned.
        watch: told the progress now and then.
        report: told what is worth a line.
        shard_bytes: write tar shards of about this size instead of the packed layout; None: the packed layout.

    Raises:
        UsageError: pruning is asked for, nothing is selected, a packed set is there already, or the disk is too small.
        StagingFailed: an image could not be read.
    """
    options = options or Options()
    if options.prune:
        raise UsageError("--prune: a packed set is written whole: remove its folder, and pack again")
    others: list[str] = []
    named = selection.splits
    try:
        selection = with_splits(origin, selection, report)
        names = chosen_classes(origin, selection)
        entries = _images(selected(origin, selection, names), others)
    except Failure as error:
        raise StagingFailed(f"{origin.address}: cannot be listed: {error}") from None
    if origin.unlisted:
        raise StagingFailed(f"{origin.unlisted[0]}: nothing is packed while a folder of the set cannot be read")
    if not entries:
        raise UsageError(f"{origin.address}: no images are selected there")
    if origin.skipped.count:
        report(f"{origin.skipped.count:,} left out, such as {origin.skipped.names[0]}")
    if others:
        report(f"{len(others):,} that are no images left out, such as {others[0]}")
    splits = selection.splits if named else tuple(_that_have_images(selection.splits, entries))
    splits = splits or ("",)
    destination.mkdir(parents=True, exist_ok=True)
    refuse_overlap(origin, destination)
    progress = Progress(listed=len(entries), listed_bytes=sum(e.size for e in entries), listing_done=True)
    progress.width = options.jobs or AT_ONCE
    change = options.change or PictureChange()
    classes = tuple(names or sorted({label for e in entries if (label := _label(e.key, splits)) is not None}))
    with destination_lock(destination, options.wait, report):
        made = _Made(state_folder(destination) / "packed.json")
        for number, split in enumerate(splits):
            own = sorted(entry for entry in entries if not split or entry.key.startswith(f"{split}/"))
            about = (origin.address, split, classes, selection.seed, change.name, change.drop_corrupt, shard_bytes)
            plan, target = plan_of(about, own), destination / split
            if _is_whole(target):
                if made[split] != plan:
                    raise UsageError(
                        f"{target}: another packed set is there already: remove it, or give another folder"
                    )
                for entry in own:
                    progress.keep(entry.size)
                report(f"{target}: packed already, from the same images in the same way")
                continue
            making = state_folder(destination) / f"packing-{number}"
            is_made = made[split] == plan and _is_whole(making)  # an interruption came while it was moved
            own_names = _OF_PACKED if shard_bytes is None else _OF_SHARDS
            _see_free(target, [path.name for path in making.iterdir()] if is_made else own_names)
            try:
                if not is_made:
                    written = sum(path.stat().st_size for path in making.glob("*"))
                    needed = max(sum(entry.size for entry in own) - written, 0)
                    check_room(destination, needed, options.keep_free)
                    images = [Image(entry, _within(entry.key, split), _label(entry.key, splits)) for entry in own]
                    random.Random(selection.seed).shuffle(images)
                    writer = functools.partial(_writer, making, classes, shard_bytes)
                    write_split(origin, images, making, plan, writer, change, progress, watch)
                    made[split] = plan
                _move(making, target, own_names)
            except (Failure, Corrupt) as error:
                raise StagingFailed(f"{error}: nothing of {target} is there yet; run the same command again") from None
            except OSError as error:
                why = error.strerror or error
                raise StagingFailed(f"{destination}: {why}: whole parts are kept; run the same command again") from None
            except DiskFull:
                raise
            except UsageError:  # a name that cannot be packed
                shutil.rmtree(making, ignore_errors=True)
                raise
    return PackSummary(
        source=origin.address,
        destination=str(destination),
        splits=tuple(splits),
        images=progress.copied,
        kept=progress.kept,
        bytes=progress.copied_bytes,
        classes=len(classes),
        shards=shard_bytes is not None,
        changed=progress.changed,
        dropped=progress.dropped,
        dropped_names=tuple(progress.dropped_names),
        seconds=progress.seconds,
        images_per_s=progress.copied / max(progress.seconds, 1e-9),
    )


def _images(entries: Iterable[ObjectInfo], others: list[str]) -> list[ObjectInfo]:
    """The images among entries; the keys of the others are added to ``others``."""
    images = []
    for entry in entries:
        if entry.key.lower().endswith(EXTENSIONS):
            images.append(entry)
        else:
            others.append(entry.key)
    return images


def _that_have_images(splits: tuple[str, ...], images: list[ObjectInfo]) -> Iterator[str]:
    for split in splits:
        if any(image.key.startswith(f"{split}/") for image in images):
            yield split


class _Made:
    """The plans by which the splits of a destination were packed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._plans = _plans(path)

    def __getitem__(self, split: str) -> str | None:
        return self._plans.get(split)

    def __setitem__(self, split: str, plan: str) -> None:
        self._plans[split] = plan
        write_atomically(self._path, json.dumps(self._plans))


def _plans(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):  # a damaged one knows nothing: its sets count as those of others
        return {}
    return found if isinstance(found, dict) else {}


def _writer(making: Path, classes: tuple[str, ...], shard_bytes: int | None) -> Writer:
    return PackedWriter(making, classes) if shard_bytes is None else TarWriter(making, classes, shard_bytes)


def _is_whole(folder: Path) -> bool:
    return any((folder / name).exists() for name in LAST)


def _see_free(target: Path, names: list[str] | re.Pattern[str]) -> None:
    """See that nothing is overwritten.

    Raises:
        UsageError: a file is there that the set will have, too, by its name.
    """
    for path in sorted(target.iterdir()) if target.is_dir() else ():
        if path.name in names if isinstance(names, list) else names.fullmatch(path.name):
            raise UsageError(f"{path}: is there already, and would be overwritten: give another folder, or remove it")


def _move(making: Path, target: Path, names: re.Pattern[str]) -> None:
    """Bring a set's files to their place; the one that says that a set is there comes last."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(making.iterdir(), key=lambda path: path.name in LAST):
        if names.fullmatch(path.name):  # not the journal, nor what a kill left of it
            os.replace(path, target / path.name)
    shutil.rmtree(making)


def _within(key: str, split: str) -> str:
    return key.removeprefix(f"{split}/") if split else key


def _label(key: str, splits: tuple[str, ...]) -> str | None:
    """The class folder of a key; None where it lies in none."""
    parts = key.split("/")
    if splits != ("",):
        parts = parts[1:]
    return parts[0] if len(parts) > 1 else None
