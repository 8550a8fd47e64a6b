"""Measures storage: the latency of a file, and files/s and bytes/s by concurrency."""

from __future__ import annotations

import functools
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flatout.errors import CommandError, UsageError
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.folder import FolderSource
from flatout.storage.page_cache import drop

CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)
KNEE = 0.9  # of the best rate
OPENED = 32  # files for the latency
HEAD_BYTES = 4096
SMALL_BYTES = 4 << 20  # larger files are not samples
LARGE_BYTES = 64 << 20
CHUNK_BYTES = 8 << 20
LISTED = 20_000  # at most
LISTING_S = 5.0
PHASE_S = 1.5
PHASE_FILES = 4_000  # at most
LEAST_FILES = 8  # for each concurrent reader


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Throughput at one concurrency."""

    concurrency: int
    files_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The measurement of a folder, mount or bucket.

    Attributes:
        place: its address.
        files: number of listed files; at most LISTED.
        mean_bytes: of the small files among them.
        cold_s: median time to the first 4 KiB of a file that is not in the page cache; None: not measured.
        warm_s: the same of files read just before.
        fixed_s: size-independent part of the time to read one file at concurrency 1 (least-squares fit).
        per_byte_s: part proportional to the size.
        small: throughput of whole small files, by concurrency; files are read once while there are enough.
        large: throughput of 8 MiB pieces of a large file, by concurrency; empty: no file of 64 MiB.
        dropped: the files could be dropped from the page cache beforehand; else cold may mean warm.
        repeated: there were too few files, so some were read again.
    """

    place: str
    files: int
    mean_bytes: float
    cold_s: float | None
    warm_s: float | None
    fixed_s: float
    per_byte_s: float
    small: tuple[Rate, ...]
    large: tuple[Rate, ...]
    dropped: bool
    repeated: bool

    @property
    def knee(self) -> Rate | None:
        """The lowest concurrency that reaches KNEE of the best rate; None if nothing was read."""
        best = max((rate.files_per_s for rate in self.small), default=0.0)
        return next((rate for rate in self.small if rate.files_per_s >= KNEE * best), None)

    def files_per_s(self, rate: Rate, size: float) -> float:
        """Predicted files/s at another file size, scaled by the fitted time of one file.

        Args:
            rate: measured.
            size: of a file, in bytes.
        """
        one = self.fixed_s + self.per_byte_s * self.mean_bytes
        other = self.fixed_s + self.per_byte_s * size
        return rate.files_per_s * one / other if other else rate.files_per_s

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return {**asdict(self), "knee": asdict(self.knee) if self.knee else None}


def measure(source: Source, seed: int = 0, tell: Callable[[str], None] = lambda text: None) -> Storage:
    """Read files in an order drawn by ``seed``.

    Args:
        source: the storage.
        seed: of the order.
        tell: called with a description of each measurement.

    Raises:
        UsageError: there are no small files.
        CommandError: they cannot be read.
    """
    tell("listing")
    try:
        objects = _listed(source)
        small = [obj for obj in objects if 0 < obj.size <= SMALL_BYTES]
        if not small:
            raise UsageError(
                f"{source.address}: no files of up to 4 MiB among {len(objects)}: "
                "--write measures with files of its own"
            )
        random.Random(seed).shuffle(small)
        files = _SmallFiles(source, small)
        tell("opening files")
        cold, warm = files.latency()
        rates = []
        for concurrency in CONCURRENCIES:
            tell(f"reading files, {concurrency} at once")
            rates.append(files.small(concurrency))
        large = max(objects, key=lambda obj: obj.size)
        pieces = []
        if large.size >= LARGE_BYTES:
            for concurrency in (1, 4, 16):
                tell(f"reading a large file, {concurrency} at once")
                pieces.append(files.large(large, concurrency))
    except Failure as error:
        raise CommandError(str(error), 1) from None
    return Storage(
        place=source.address,
        files=len(objects),
        mean_bytes=statistics.mean(obj.size for obj in small),
        cold_s=cold,
        warm_s=warm,
        fixed_s=files.fixed_s,
        per_byte_s=files.per_byte_s,
        small=tuple(rates),
        large=tuple(pieces),
        dropped=files.dropped,
        repeated=files.repeated,
    )


class _SmallFiles:
    """Small files in random order; none is read again before all others were."""

    def __init__(self, source: Source, objects: list[ObjectInfo]) -> None:
        self.source, self.objects = source, objects
        self.root = source.root if isinstance(source, FolderSource) else None
        self.next = 0
        self.dropped = self.root is not None
        self.repeated = False
        self.fixed_s = self.per_byte_s = 0.0

    def take(self, most: int, least: int = 1) -> list[ObjectInfo]:
        """The next files, dropped from the page cache; starts over if fewer than ``least`` are left."""
        if len(self.objects) - self.next < least and self.next:
            self.next, self.repeated = 0, True
        chosen = self.objects[self.next : self.next + most]
        self.forget(chosen)
        return chosen

    def forget(self, objects: list[ObjectInfo]) -> None:
        """Drop the files from the page cache if there is one."""
        if self.root is None:
            return
        root = self.root
        with ThreadPoolExecutor(32) as pool:  # opening may take long here
            dropped = sum(pool.map(lambda obj: drop([root / obj.key]), objects))
        if dropped < len(objects):
            self.dropped = False

    def latency(self) -> tuple[float, float]:
        chosen = self.take(OPENED)
        self.next += len(chosen)
        medians = []
        for _ in range(2):
            took = []
            for obj in chosen:
                began = time.perf_counter()
                self.source.read(obj, 0, min(obj.size, HEAD_BYTES))
                took.append(time.perf_counter() - began)
            medians.append(statistics.median(took))
        return medians[0], medians[1]

    def small(self, concurrency: int) -> Rate:
        chosen = self.take(PHASE_FILES, LEAST_FILES * concurrency)
        rate, times = _timed(concurrency, [functools.partial(self.source.read, obj) for obj in chosen])
        self.next += len(times)
        if concurrency == 1:
            self.fixed_s, self.per_byte_s = _fit(times)
        return rate

    def large(self, obj: ObjectInfo, concurrency: int) -> Rate:
        self.forget([obj])
        starts = range(0, obj.size - CHUNK_BYTES + 1, CHUNK_BYTES)
        return _timed(concurrency, [functools.partial(self.source.read, obj, start, CHUNK_BYTES) for start in starts])[
            0
        ]


def _timed(concurrency: int, reads: Sequence[Callable[[], Any]]) -> tuple[Rate, list[tuple[int, float]]]:
    """Read with this many threads until PHASE_S have passed or all is read; reads in progress still count.

    A thread that starts late on a busy machine still reads once: there is always something to compute a rate of.
    Also returns the bytes and seconds of each read.
    """
    coming = iter(reads)
    lock = threading.Lock()
    began = time.perf_counter()

    def work(_: int) -> list[tuple[int, float]]:
        done: list[tuple[int, float]] = []
        while not done or time.perf_counter() - began < PHASE_S:
            with lock:
                read = next(coming, None)
            if read is None:
                break
            start = time.perf_counter()
            size = len(read())
            done.append((size, time.perf_counter() - start))
        return done

    with ThreadPoolExecutor(concurrency) as pool:
        times = [one for found in pool.map(work, range(concurrency)) for one in found]
    took = time.perf_counter() - began
    rate = Rate(
        concurrency=concurrency, files_per_s=len(times) / took, bytes_per_s=sum(size for size, _ in times) / took
    )
    return rate, times


def _fit(times: list[tuple[int, float]]) -> tuple[float, float]:
    """Fixed seconds of a read, and seconds per byte: least squares, neither below 0."""
    sizes, seconds = np.array(times, dtype=np.float64).T
    mean = float(np.mean(seconds))
    if len(times) < 3 or np.ptp(sizes) < 0.1 * np.mean(sizes):
        return mean, 0.0  # files of one size: the part per byte cannot be fitted
    slope, fixed = (float(value) for value in np.polyfit(sizes, seconds, 1))
    if slope < 0:
        return mean, 0.0
    return (fixed, slope) if fixed >= 0 else (0.0, mean / float(np.mean(sizes)))


def _listed(source: Source) -> list[ObjectInfo]:
    until = time.monotonic() + LISTING_S
    found: list[ObjectInfo] = []
    for obj in source.objects():
        found.append(obj)
        if len(found) == LISTED or time.monotonic() > until:
            break
    return found
