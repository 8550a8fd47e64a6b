"""Copy one object to its file: read, compare with what the store says of it, and only then give it its name."""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from flatout.stage.buffers import thread_buffer
from flatout.stage.failures import Failure
from flatout.stage.large_files import PART_BYTES, Attend, nobody
from flatout.stage.origins import Entry, Origin
from flatout.stage.patience import read_patiently
from flatout.stage.pictures import PictureChange
from flatout.stage.state import Complete
from flatout.stage.target import Target

PIECE_BYTES = 1 << 20  # of the thread's buffer: many threads copy at once
STREAMED_BYTES = 128 << 20  # up to which an object whose bytes are needed in order comes over one connection
AHEAD = 4  # parts of a larger one on their way
_IN_ORDER = threading.Semaphore(8)  # larger ones at once: each holds up to AHEAD parts in memory
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


def copy(
    entry: Entry,
    origin: Origin,
    target: Target,
    change: PictureChange | None = None,
    attend: Attend = nobody,
) -> Complete:
    """Copy an object: read it, check it, write it; it gets its name last.

    The check: the size that was listed; the MD5 that the store gives as ETag of an object stored in one piece.
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
    expected = _expected_md5(entry)
    if change is not None and change.applies(entry.key):
        data = b"".join(map(bytes, _checked(entry, origin, expected)))
        return target.write(entry.key, [change.apply(entry.key, data)], version)
    if entry.size > PART_BYTES and expected is None and origin.has_ranges(entry):

        def stream(start: int, length: int) -> Iterator[memoryview]:
            return origin.stream(entry, thread_buffer(), start, length)

        return target.write_parts(entry.key, stream, version, entry.size, attend)
    # What was compared with the store's own checksum needs no other one.
    checksum = f"md5:{expected}" if expected else ""
    return target.write(entry.key, _checked(entry, origin, expected), version, entry.size, checksum)


def version_of(entry: Entry, change: PictureChange | None) -> str:
    """What the file at the destination is made from: the object's version, and what was changed."""
    return f"{entry.version}+{change.name}" if change is not None and change.applies(entry.key) else entry.version


def _checked(entry: Entry, origin: Origin, expected: str | None) -> Iterator[memoryview]:
    """The bytes of an object; raises at the end if they are not what was listed."""
    digest = hashlib.md5(usedforsecurity=False) if expected else None
    received = 0
    in_parts = entry.size > STREAMED_BYTES and origin.has_ranges(entry)
    for piece in _parts(entry, origin) if in_parts else origin.stream(entry, thread_buffer()[:PIECE_BYTES]):
        received += len(piece)
        if digest is not None:
            digest.update(piece)
        yield piece
    if received != entry.size:
        raise Failure("changed", f"{entry.key}: {received} bytes came where {entry.size} were listed")
    if digest is not None and digest.hexdigest() != expected:
        raise Failure("again", f"{entry.key}: the bytes do not match the store's checksum")


def _parts(entry: Entry, origin: Origin) -> Iterator[memoryview]:
    """The parts of a large object in order, several of them on their way at once."""
    starts = iter(range(0, entry.size, PART_BYTES))

    def read(start: int) -> bytes:
        return read_patiently(origin, entry, start, min(PART_BYTES, entry.size - start))

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


def _expected_md5(entry: Entry) -> str | None:
    """The MD5 in an ETag; None where the ETag is none (several parts, encryption)."""
    found = _MD5.fullmatch(entry.version)
    return found[1] if found else None
