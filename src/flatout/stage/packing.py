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
from flatout.stage.failures import Failure
from flatout.stage.names import state_folder
from flatout.stage.occupied import alone
from flatout.stage.origins import Entry, Origin
from flatout.stage.patience import read_patiently
from flatout.stage.selection import Selection, chosen_classes, selected
from flatout.stage.space import check_room
from flatout.stage.staging import Options, Progress, StagingFailed

AT_ONCE = 32
WATCH_EVERY_S = 0.2
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

    Raises:
        UsageError: pruning is asked for, nothing is selected, a packed set is there already, or the disk is too small.
        StagingFailed: an image could not be read.
    """
    options = options or Options()
    if options.prune:
        raise UsageError("--prune: a packed set is written whole: remove its folder, and pack again")
    splits = selection.splits or ("",)
    for split in splits:
        if (destination / split / NAME).exists():
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
    check_room(destination, progress.listed_bytes, options.keep_free)
    classes = tuple(names or sorted({label for e in entries if (label := _label(e.key, splits)) is not None}))
    with alone(destination, options.wait, report):
        for split in splits:
            own = [entry for entry in entries if not split or entry.key.startswith(f"{split}/")]
            _pack_split(origin, destination, split, own, splits, classes, selection.seed, progress, watch)
    return PackSummary(
        source=origin.address,
        destination=str(destination),
        splits=tuple(splits),
        images=progress.copied,
        bytes=progress.copied_bytes,
        classes=len(classes),
        seconds=progress.seconds,
        images_per_s=progress.copied / max(progress.seconds, 1e-9),
    )


def _pack_split(
    origin: Origin,
    destination: Path,
    split: str,
    entries: list[Entry],
    splits: tuple[str, ...],
    classes: tuple[str, ...],
    seed: int,
    progress: Progress,
    watch: Callable[[Progress], None],
) -> None:
    entries = sorted(entries)
    random.Random(seed).shuffle(entries)
    making = state_folder(destination) / f"packing-{os.getpid()}"
    shutil.rmtree(making, ignore_errors=True)
    told = progress.began
    try:
        with PackedWriter(making, classes) as writer:
            for entry, data in _read(origin, entries, progress.width):
                key = entry.key.removeprefix(f"{split}/") if split else entry.key
                writer.add(key, _label(entry.key, splits), data)
                progress.copied += 1
                progress.copied_bytes += len(data)
                if time.monotonic() - told > WATCH_EVERY_S:
                    told = time.monotonic()
                    watch(progress)
        target = destination / split
        target.mkdir(parents=True, exist_ok=True)
        # The file that says that a set is there comes last.
        for path in sorted(making.iterdir(), key=lambda path: path.name == NAME):
            os.replace(path, target / path.name)
    except Failure as error:
        raise StagingFailed(f"{error}: nothing of {split or 'the set'} was written") from None
    except OSError as error:
        raise StagingFailed(
            f"{destination}: {error.strerror or error}: nothing of {split or 'the set'} was written"
        ) from None
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _read(origin: Origin, entries: Iterable[Entry], at_once: int) -> Iterator[tuple[Entry, bytes]]:
    """Entries with their bytes, in order, several read ahead."""
    coming = iter(entries)
    waiting: deque[tuple[Entry, Future[bytes]]] = deque()
    with ThreadPoolExecutor(at_once, "flatout-pack") as pool:
        try:
            while True:
                while len(waiting) < READ_AHEAD * at_once and (entry := next(coming, None)) is not None:
                    waiting.append((entry, pool.submit(read_patiently, origin, entry)))
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
