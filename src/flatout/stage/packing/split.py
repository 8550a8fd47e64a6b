"""Writes the images of one split into a packed set or tar shards, resuming an earlier packing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from flatout.formats.packed import NAME, PackedWriter
from flatout.formats.tar_shards import NAME as TAR_NAME
from flatout.formats.tar_shards import TarWriter
from flatout.stage.packing.journal import Line, PackingJournal
from flatout.stage.pictures import Corrupt, PictureChange
from flatout.stage.progress import Progress
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.retries import read_with_retries

WATCH_EVERY_S = 0.2
LAST = (NAME, TAR_NAME)  # the files that declare a set whole
READ_AHEAD = 4  # times the concurrency: bounds the memory

Writer = PackedWriter | TarWriter


class Image(NamedTuple):
    """One image of a split."""

    obj: ObjectInfo
    key: str  # within the split
    label: str | None


def write_split(
    source: Source,
    images: list[Image],
    folder: Path,
    plan: str,
    open_writer: Callable[[], Writer],
    change: PictureChange,
    progress: Progress,
    watch: Callable[[Progress], None],
) -> None:
    """Write the images in order; those in parts that are whole already are not read again.

    Args:
        source: where they are read.
        images: in the order in which they are stored.
        folder: where the set is written; an interruption leaves it for the next packing.
        plan: digest of what is packed and how; a folder written by another plan is emptied.
        open_writer: opens a writer on the folder.
        change: how images are scaled or re-encoded.
        progress: counts the images.
        watch: called a few times per second.

    Raises:
        Failure: an image could not be read.
        Corrupt: one cannot be decoded.
        UsageError: a name that cannot be packed.
        OSError: the folder cannot be written.
    """
    journal = PackingJournal(folder, plan)
    for name in LAST:
        (folder / name).unlink(missing_ok=True)
    journal.keep(_in_whole_parts(images, journal.lines, open_writer()))
    with open_writer() as writer:
        for image, line in zip(images, journal.lines, strict=False):
            if isinstance(line, str):
                progress.drop(line)
            else:
                writer.count(image.key, image.label, line)
                progress.keep(image.obj.size)
        watched = progress.began
        for image, made in _read(source, images[len(journal.lines) :], progress.concurrency, change):
            part = writer.part
            if isinstance(made, Corrupt):
                progress.drop(str(made))
                journal.add(str(made))
                continue
            writer.add(image.key, image.label, made)
            journal.add(len(made))
            if writer.part != part:
                journal.flush()
            progress.copy(len(made))
            if len(made) != image.obj.size:
                progress.change()
            if time.monotonic() - watched > WATCH_EVERY_S:
                watched = time.monotonic()
                watch(progress)


def _in_whole_parts(images: list[Image], lines: list[Line], writer: Writer) -> int:
    """Number of recorded images in parts before the last one, which may be incomplete."""
    first_of_part = 0
    for number, (image, line) in enumerate(zip(images, lines, strict=False)):
        if isinstance(line, int):
            part = writer.part
            writer.count(image.key, image.label, line)
            if writer.part != part:
                first_of_part = number
    return first_of_part


def _read(
    source: Source, images: Iterable[Image], concurrency: int, change: PictureChange
) -> Iterator[tuple[Image, bytes | Corrupt]]:
    """Images with their bytes, in order, several read ahead."""
    coming = iter(images)
    waiting: deque[tuple[Image, Future[bytes | Corrupt]]] = deque()
    with ThreadPoolExecutor(concurrency, "flatout-pack") as pool:
        try:
            while True:
                while len(waiting) < READ_AHEAD * concurrency and (image := next(coming, None)) is not None:
                    waiting.append((image, pool.submit(_made, source, image.obj, change)))
                if not waiting:
                    return
                image, made = waiting.popleft()
                yield image, made.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _made(source: Source, obj: ObjectInfo, change: PictureChange) -> bytes | Corrupt:
    data = read_with_retries(source, obj)
    if not change.applies(obj.key):
        return data
    try:
        return change.apply(obj.key, data)
    except Corrupt as error:
        if change.drop_corrupt:
            return error
        raise
