"""Predicts a staging: size, free space, time. Copies nothing."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from flatout.stage.archives.unpacking import is_archive, is_noted_unpacked, unpacked
from flatout.stage.copying import version_of
from flatout.stage.destination.recorded import recorded
from flatout.stage.destination.safe_paths import refusal
from flatout.stage.destination.space import free_bytes
from flatout.stage.destination.state import is_complete
from flatout.stage.pictures import PictureChange
from flatout.stage.selection import Selection, chosen_classes, selected
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure

TRY_FILES = 64
TRY_CONCURRENCY = 32  # each of them makes a connection first
TRY_BYTES = 32 << 20


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The prediction of a staging."""

    files: int
    bytes: int
    missing_files: int  # of those: missing at the destination, or outdated there
    missing_bytes: int
    n_refused: int  # keys that cannot be files, links that lead nowhere, and the like
    unlisted: tuple[str, ...]  # folders that could not be read, with the reason
    free_bytes: int
    fits: bool
    classes: int | None
    tried_files: int  # read for the prediction
    tried_concurrency: int
    predicted_s: float | None  # of reading what is missing, at the rate of those; None if none could be read

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def look_ahead(
    source: Source,
    destination: Path,
    selection: Selection,
    min_free: int | None = None,
    change: PictureChange | None = None,
    watch: Callable[[int, int], None] = lambda files, size: None,
    listing_s: float = math.inf,
    unpack: bool = False,
) -> Outlook | None:
    """List what would be staged, read some of it, and predict.

    Nothing is written. The prediction scales the measured time of up to 64 files to all: by files where requests
    bound it, by bytes where they do, whichever is longer.

    Args:
        source: where it is.
        destination: need not exist.
        selection: what of it.
        min_free: bytes of the disk to leave free; None: a default.
        change: what would be done to pictures on the way.
        watch: called regularly with the files and bytes listed so far.
        listing_s: seconds that listing may take.
        unpack: archives would become folders: those that were unpacked are there.

    Returns:
        None when listing takes longer than allowed.
    """
    began = time.monotonic()
    files = total = refused = missing = missing_bytes = 0
    tries: list[ObjectInfo] = []
    tried = 0
    classes = chosen_classes(source, selection)
    with recorded(destination, source.address) as (known, about):
        for obj in selected(source, selection, classes):
            if refusal(obj.key) is not None:
                refused += 1
                continue
            files += 1
            total += obj.size
            if unpack and is_archive(obj.key):
                there = is_noted_unpacked(obj, about(unpacked(obj.key)))
            else:
                done = known(obj.key)
                there = done is not None and is_complete(done, version_of(obj, change), destination / obj.key)
            if not there:
                missing += 1
                missing_bytes += obj.size
                if len(tries) < TRY_FILES and tried + obj.size <= TRY_BYTES:
                    tries.append(obj)
                    tried += obj.size
            if files % 100 == 0:
                watch(files, total)
                if time.monotonic() - began > listing_s:
                    return None
    place = Path(os.path.realpath(destination))
    while not place.exists():
        place = place.parent
    free = free_bytes(place, min_free)
    return Outlook(
        files=files,
        bytes=total,
        missing_files=missing,
        missing_bytes=missing_bytes,
        n_refused=refused + source.skipped.count,
        unlisted=tuple(source.unlisted),
        free_bytes=free,
        fits=missing_bytes <= free,
        classes=None if classes is None else len(classes),
        tried_files=len(tries),
        tried_concurrency=min(len(tries), TRY_CONCURRENCY),
        predicted_s=_predict(source, tries, missing, missing_bytes),
    )


def _predict(source: Source, tries: list[ObjectInfo], files: int, total: int) -> float | None:
    if not tries:
        return 0.0 if not files else None
    with ThreadPoolExecutor(TRY_CONCURRENCY) as pool:
        try:
            list(pool.map(source.read, tries[:TRY_CONCURRENCY]))  # connections are made once, not for every file
            began = time.monotonic()
            list(pool.map(source.read, tries))
            took = time.monotonic() - began
        except Failure:
            return None
    read = sum(obj.size for obj in tries)
    return took * max(files / len(tries), total / max(read, 1))
