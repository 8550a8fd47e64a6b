"""Copy one object to its file: read, compare with what the store says of it, and only then give it its name."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flatout.stage.failures import Failure
from flatout.stage.origins import Entry, Origin
from flatout.stage.pictures import PictureChange
from flatout.stage.state import Complete
from flatout.stage.target import PART_BYTES, PARTS_AT_ONCE, Target

_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


def copy(entry: Entry, origin: Origin, target: Target, change: PictureChange | None = None) -> Complete:
    """Copy an object: read it, check it, write it; it gets its name last.

    The check: the size that was listed; the MD5 that the store gives as ETag of an object stored in one piece.
    Larger objects are read in ranges of the version listed, so that no two versions mix.

    Args:
        entry: the object.
        origin: where it is.
        target: where it goes.
        change: what is done to pictures on the way; they are changed after the check.

    Raises:
        Failure: the object could not be read, or is not what was listed.
        Corrupt: a picture that cannot be decoded.
        OSError: the destination cannot be written.
    """
    version = version_of(entry, change)
    expected = _expected_md5(entry)
    if change is not None and change.applies(entry.key):
        data = b"".join(_checked(entry, origin, expected))
        return target.write(entry.key, [change.apply(entry.key, data)], version)
    if entry.size > PART_BYTES and expected is None:
        return target.write_parts(entry.key, functools.partial(origin.read, entry), version, entry.size)
    # What was compared with the store's own checksum needs no other one.
    checksum = f"md5:{expected}" if expected else ""
    return target.write(entry.key, _checked(entry, origin, expected), version, entry.size, checksum)


def version_of(entry: Entry, change: PictureChange | None) -> str:
    """What the file at the destination is made from: the object's version, and what was changed."""
    return f"{entry.version}+{change.name}" if change is not None and change.applies(entry.key) else entry.version


def _checked(entry: Entry, origin: Origin, expected: str | None) -> Iterator[Any]:
    """The bytes of an object; raises at the end if they are not what was listed."""
    digest = hashlib.md5(usedforsecurity=False) if expected else None
    received = 0
    for part in [origin.read(entry)] if entry.size <= PART_BYTES else _parts(entry, origin):
        received += len(memoryview(part))
        if digest is not None:
            digest.update(part)
        yield part
    if received != entry.size:
        raise Failure("changed", f"{entry.key}: {received} bytes came where {entry.size} were listed")
    if digest is not None and digest.hexdigest() != expected:
        raise Failure("again", f"{entry.key}: the bytes do not match the store's checksum")


def _parts(entry: Entry, origin: Origin) -> Iterator[Any]:
    """The parts of a large object in order, several of them on their way at once."""
    starts = iter(range(0, entry.size, PART_BYTES))
    with ThreadPoolExecutor(PARTS_AT_ONCE, "flatout-parts") as pool:
        coming = deque(
            pool.submit(origin.read, entry, start, min(PART_BYTES, entry.size - start))
            for start in itertools.islice(starts, PARTS_AT_ONCE)
        )
        try:
            while coming:
                part = coming.popleft().result()
                if (start := next(starts, None)) is not None:
                    coming.append(pool.submit(origin.read, entry, start, min(PART_BYTES, entry.size - start)))
                yield part
        finally:
            for waiting in coming:
                waiting.cancel()


def _expected_md5(entry: Entry) -> str | None:
    """The MD5 in an ETag; None where the ETag is none (several parts, encryption)."""
    found = _MD5.fullmatch(entry.version)
    return found[1] if found else None
