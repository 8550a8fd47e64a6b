"""Copy one object to its file: read, compare with what the store says of it, and only then give it its name."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from flatout.stage.checksums import PART_BYTES
from flatout.stage.destination.large_files import Attend, nobody
from flatout.stage.destination.state import SIZE_ONLY, Complete
from flatout.stage.destination.target import Target
from flatout.stage.pictures import PictureChange
from flatout.stage.sources.base import Attributes, ObjectInfo, Source
from flatout.stage.sources.buffers import thread_buffer
from flatout.stage.sources.retries import read_patiently
from flatout.stage.verifying import Verification, judge_parts, parts_in, plan_for, same_version

PIECE_BYTES = 1 << 20  # of the thread's buffer: many threads copy at once
IN_ORDER_BYTES = 4 << 20  # of a large object, asked for at once: those on their way are in memory
STREAMED_BYTES = 128 << 20  # up to which an object whose bytes are needed in order comes over one connection
AHEAD = 4  # parts of a larger one on their way
_IN_ORDER = threading.Semaphore(4)  # larger ones at once: each holds up to AHEAD parts in memory, twice


def copy(
    entry: ObjectInfo,
    origin: Source,
    target: Target,
    change: PictureChange | None = None,
    attend: Attend = nobody,
) -> Complete:
    """Copy an object: read it, check it, write it; it gets its name last.

    The check: the size that was listed, and what the store offers to compare (``verifying.py``).
    Larger objects are read in ranges of the version listed, so that no two versions mix.

    Args:
        entry: the object.
        origin: where it is.
        target: where it goes.
        change: what is done to pictures on the way; they are changed after the check.
        attend: called, in any thread, before each part of a large object is asked for, with the failure that it is
            asked for again after; may raise.

    Raises:
        Failure: the object could not be read, or is not what was listed.
        Corrupt: a picture that cannot be decoded.
        OSError: the destination cannot be written.
    """
    version = version_of(entry, change)
    verification = Verification(entry, origin)
    if change is not None and change.applies(entry.key):
        data = b"".join(map(bytes, verification.passing(_pieces(entry, origin))))
        verification.judge(data)
        done = target.write(entry.key, [change.apply(entry.key, data)], version)
        return done._replace(verified=verification.verified)
    attributes = origin.attributes(entry)
    in_parts = entry.size > PART_BYTES or (parts_in(entry) or 0) > 1
    if in_parts and not verification.has_checksum and origin.has_ranges(entry):
        return _copy_in_parts(entry, origin, target, attend, attributes)
    done = target.write(
        entry.key,
        verification.passing(_pieces(entry, origin)),
        version,
        entry.size,
        verification.checksum if verification.has_checksum else None,
        attributes,
        lambda fd: verification.judge(f"/proc/self/fd/{fd}"),
    )
    return done._replace(verified=verification.verified)


def _copy_in_parts(
    entry: ObjectInfo, origin: Source, target: Target, attend: Attend, attributes: Attributes | None
) -> Complete:
    """Copy an object whose parts may come in any order."""
    # A large object is worth a question beforehand: the store may have a checksum that costs less than an MD5.
    plan = plan_for(entry, origin, same_version(entry, origin) if entry.size > PART_BYTES else None)
    verified = SIZE_ONLY

    def stream(start: int, length: int) -> Iterator[memoryview]:
        return origin.stream(entry, thread_buffer(), start, length)

    def ended(fd: int, checksum: str) -> None:
        nonlocal verified
        verified = judge_parts(plan, checksum, entry, origin, f"/proc/self/fd/{fd}")

    done = target.write_parts(entry.key, stream, entry.version, entry.size, attend, attributes, plan.checksum, ended)
    return done._replace(verified=verified)


def version_of(entry: ObjectInfo, change: PictureChange | None) -> str:
    """What the file at the destination is made from: the object's version, and what was changed."""
    return f"{entry.version}+{change.name}" if change is not None and change.applies(entry.key) else entry.version


def _pieces(entry: ObjectInfo, origin: Source) -> Iterator[memoryview]:
    """The bytes of an object in order."""
    if entry.size > STREAMED_BYTES and origin.has_ranges(entry):
        return _parts(entry, origin)
    return origin.stream(entry, thread_buffer()[:PIECE_BYTES])


def _parts(entry: ObjectInfo, origin: Source) -> Iterator[memoryview]:
    """The parts of a large object in order, several of them on their way at once."""
    starts = iter(range(0, entry.size, IN_ORDER_BYTES))

    def read(start: int) -> bytes:
        return read_patiently(origin, entry, start, min(IN_ORDER_BYTES, entry.size - start))

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
