"""Bring a set of images as one packed set a split: a few large files that a training reads without opening any."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from flatout.errors import UsageError
from flatout.loader.file_names import EXTENSIONS
from flatout.loader.packed import NAME, PackedWriter
from flatout.stage.bringing import Options
from flatout.stage.failures import Failure
from flatout.stage.names import state_folder
from flatout.stage.occupied import alone
from flatout.stage.origins import Entry, Origin
from flatout.stage.patience import read_patiently
from flatout.stage.pictures import Corrupt, PictureChange
from flatout.stage.progress import Progress
from flatout.stage.selection import Selection, chosen_classes, selected
from flatout.stage.space import check_room
from flatout.stage.staging import StagingFailed
from flatout.stage.tar_shards import NAME as TAR_NAME
from flatout.stage.tar_shards import TarWriter

AT_ONCE = 32
WATCH_EVERY_S = 0.2
LAST = (NAME, TAR_NAME)  # files that say that a set is whole
READ_AHEAD = 4  # times the reads at once: bounds the memory


@dataclass(frozen=True, kw_only=True)
class PackSummary:
    """What was packed."""

    source: str
    destination: str
    splits: tuple[str, ...]  # "": the set has none
    images: int
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
    origin: Origin,
    destination: Path,
    selection: Selection,
    options: Options | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    report: Callable[[str], None] = lambda line: None,
    shard_bytes: int | None = None,
) -> PackSummary:
    """Write a packed set a split, images in an order drawn by the selection's seed; labels are the first folders.

    A split appears at once when it is whole; an interruption leaves nothing of it.

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
    splits = selection.splits or ("",)
    for split in splits:
        if any((destination / split / name).exists() for name in LAST):
            raise UsageError(f"{destination / split}: a packed set is there already: remove it, or give another folder")
    try:
        names = chosen_classes(origin, selection)
        entries = [entry for entry in selected(origin, selection, names) if entry.key.lower().endswith(EXTENSIONS)]
    except Failure as error:
        raise StagingFailed(f"{origin.address}: cannot be listed: {error}") from None
    if not entries:
        raise UsageError(f"{origin.address}: no images are selected there")
    destination.mkdir(parents=True, exist_ok=True)
    progress = Progress(listed=len(entries), listed_bytes=sum(e.size for e in entries), listing_done=True)
    progress.width = options.jobs or AT_ONCE
    change = options.change or PictureChange()
    check_room(destination, progress.listed_bytes, options.keep_free)
    classes = tuple(names or sorted({label for e in entries if (label := _label(e.key, splits)) is not None}))
    with alone(destination, options.wait, report):
        for split in splits:
            own = [entry for entry in entries if not split or entry.key.startswith(f"{split}/")]
            making = state_folder(destination) / f"packing-{os.getpid()}"
            shutil.rmtree(making, ignore_errors=True)
            try:
                with _writer(making, classes, shard_bytes) as writer:
                    for entry, data in _in_drawn_order(origin, own, selection.seed, progress, change, watch):
                        key = entry.key.removeprefix(f"{split}/") if split else entry.key
                        writer.add(key, _label(entry.key, splits), data)
                _move(making, destination / split)
            except (Failure, Corrupt) as error:
                raise StagingFailed(f"{error}: nothing of {split or 'the set'} was written") from None
            except OSError as error:
                raise StagingFailed(
                    f"{destination}: {error.strerror or error}: nothing of {split or 'the set'} was written"
                ) from None
            finally:
                shutil.rmtree(making, ignore_errors=True)
    return PackSummary(
        source=origin.address,
        destination=str(destination),
        splits=tuple(splits),
        images=progress.copied,
        bytes=progress.copied_bytes,
        classes=len(classes),
        shards=shard_bytes is not None,
        changed=progress.changed,
        dropped=progress.dropped,
        dropped_names=tuple(progress.dropped_names),
        seconds=progress.seconds,
        images_per_s=progress.copied / max(progress.seconds, 1e-9),
    )


def _writer(making: Path, classes: tuple[str, ...], shard_bytes: int | None) -> PackedWriter | TarWriter:
    return PackedWriter(making, classes) if shard_bytes is None else TarWriter(making, classes, shard_bytes)


def _in_drawn_order(
    origin: Origin,
    entries: list[Entry],
    seed: int,
    progress: Progress,
    change: PictureChange,
    watch: Callable[[Progress], None],
) -> Iterator[tuple[Entry, bytes]]:
    """The images in an order drawn by seed, as they are to be written."""
    entries = sorted(entries)
    random.Random(seed).shuffle(entries)
    told = progress.began
    for entry, made in _read(origin, entries, progress.width, change):
        if isinstance(made, Corrupt):
            progress.drop(str(made))
            continue
        yield entry, made
        progress.copy(len(made))
        if len(made) != entry.size:
            progress.change()
        if time.monotonic() - told > WATCH_EVERY_S:
            told = time.monotonic()
            watch(progress)


def _move(making: Path, target: Path) -> None:
    """Bring the files to their place; the one that says that a set is there comes last."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(making.iterdir(), key=lambda path: path.name in LAST):
        os.replace(path, target / path.name)


def _image(origin: Origin, entry: Entry, change: PictureChange) -> bytes | Corrupt:
    data = read_patiently(origin, entry)
    if not change.applies(entry.key):
        return data
    try:
        return change.apply(entry.key, data)
    except Corrupt as error:
        if change.drop_corrupt:
            return error
        raise


def _read(
    origin: Origin, entries: Iterable[Entry], at_once: int, change: PictureChange
) -> Iterator[tuple[Entry, bytes | Corrupt]]:
    """Entries with their bytes, in order, several read ahead."""
    coming = iter(entries)
    waiting: deque[tuple[Entry, Future[bytes | Corrupt]]] = deque()
    with ThreadPoolExecutor(at_once, "flatout-pack") as pool:
        try:
            while True:
                while len(waiting) < READ_AHEAD * at_once and (entry := next(coming, None)) is not None:
                    waiting.append((entry, pool.submit(_image, origin, entry, change)))
                if not waiting:
                    return
                entry, data = waiting.popleft()
                yield entry, data.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _label(key: str, splits: tuple[str, ...]) -> str | None:
    """The class folder of a key; None where it lies in none."""
    parts = key.split("/")
    if splits != ("",):
        parts = parts[1:]
    return parts[0] if len(parts) > 1 else None
