"""Copies one object to a file: read, verify against the store, then rename into place."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from flatout.stage.checksums import PART_BYTES
from flatout.stage.destination.large_files import BeforeRequest, no_check
from flatout.stage.destination.state import SIZE_ONLY, Complete
from flatout.stage.destination.target import Target
from flatout.stage.pictures import PictureChange
from flatout.stage.sources.base import Attributes, ObjectInfo, Source
from flatout.stage.sources.buffers import thread_buffer
from flatout.stage.sources.retries import read_with_retries
from flatout.stage.verifying import Verification, judge_parts, parts_in, plan_for, same_version

PIECE_BYTES = 1 << 20  # of the thread's buffer: many threads copy concurrently
IN_ORDER_BYTES = 4 << 20  # of a large object, asked for at once: those on their way are in memory
STREAMED_BYTES = 128 << 20  # up to which an object whose bytes are needed in order comes over one connection
AHEAD = 4  # parts of a larger one on their way
_IN_ORDER = threading.Semaphore(4)  # larger ones at once: each holds up to AHEAD parts in memory, twice


def copy(
    obj: ObjectInfo,
    source: Source,
    target: Target,
    change: PictureChange | None = None,
    before_request: BeforeRequest = no_check,
) -> Complete:
    """Copy an object: read, verify and write it; name the file last.

    The check: the size that was listed, and what the store offers to compare (``verifying.py``).
    Larger objects are read in ranges of the version listed, so that no two versions mix.

    Args:
        obj: the object.
        source: where it is.
        target: where it goes.
        change: what is done to pictures on the way; they are changed after the check.
        before_request: called in any thread before each part of a large object is requested: with None, or with the
            failure that this request follows; may raise.

    Raises:
        Failure: the object could not be read, or is not the listed version.
        Corrupt: a picture that cannot be decoded.
        OSError: the destination cannot be written.
    """
    version = version_of(obj, change)
    verification = Verification(obj, source)
    if change is not None and change.applies(obj.key):
        data = b"".join(map(bytes, verification.passing(_pieces(obj, source))))
        verification.judge(data)
        done = target.write(obj.key, [change.apply(obj.key, data)], version)
        return done._replace(verified=verification.verified)
    attributes = source.attributes(obj)
    in_parts = obj.size > PART_BYTES or (parts_in(obj) or 0) > 1
    if in_parts and not verification.has_checksum and source.has_ranges(obj):
        return _copy_in_parts(obj, source, target, before_request, attributes)
    done = target.write(
        obj.key,
        verification.passing(_pieces(obj, source)),
        version,
        obj.size,
        verification.checksum if verification.has_checksum else None,
        attributes,
        lambda fd: verification.judge(f"/proc/self/fd/{fd}"),
    )
    return done._replace(verified=verification.verified)


def _copy_in_parts(
    obj: ObjectInfo, source: Source, target: Target, before_request: BeforeRequest, attributes: Attributes | None
) -> Complete:
    """Copy an object whose parts may come in any order."""
    # For a large object, ask the store first: it may have a checksum that costs less than an MD5.
    plan = plan_for(obj, source, same_version(obj, source) if obj.size > PART_BYTES else None)
    verified = SIZE_ONLY

    def stream(start: int, length: int) -> Iterator[memoryview]:
        return source.stream(obj, thread_buffer(), start, length)

    def ended(fd: int, checksum: str) -> None:
        nonlocal verified
        verified = judge_parts(plan, checksum, obj, source, f"/proc/self/fd/{fd}")

    done = target.write_parts(obj.key, stream, obj.version, obj.size, before_request, attributes, plan.checksum, ended)
    return done._replace(verified=verified)


def version_of(obj: ObjectInfo, change: PictureChange | None) -> str:
    """The recorded version of the destination file: the object's version, plus any picture change."""
    return f"{obj.version}+{change.name}" if change is not None and change.applies(obj.key) else obj.version


def _pieces(obj: ObjectInfo, source: Source) -> Iterator[memoryview]:
    """The bytes of an object in order."""
    if obj.size > STREAMED_BYTES and source.has_ranges(obj):
        return _parts(obj, source)
    return source.stream(obj, thread_buffer()[:PIECE_BYTES])


def _parts(obj: ObjectInfo, source: Source) -> Iterator[memoryview]:
    """The parts of a large object in order, several of them on their way at once."""
    starts = iter(range(0, obj.size, IN_ORDER_BYTES))

    def read(start: int) -> bytes:
        return read_with_retries(source, obj, start, min(IN_ORDER_BYTES, obj.size - start))

    with _IN_ORDER, ThreadPoolExecutor(AHEAD, "flatout-parts") as pool:
        coming = deque(pool.submit(read, start) for start in itertools.islice(starts, AHEAD))
        try:
            while coming:
                part = coming.popleft().result()
                if (start := next(starts, None)) is not None:
                    coming.append(pool.submit(read, start))
                yield memoryview(part)
        finally:
            for waiting in coming:
                waiting.cancel()
