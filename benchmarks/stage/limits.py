"""What the wire and the disk give alone: no client can be faster than the slower of them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flatout.stage.checksums import PART_BYTES
from flatout.stage.sources.base import StoreOptions
from flatout.stage.sources.buffers import thread_buffer
from flatout.stage.sources.open import open_source

BLOCK = 4 << 20
STREAMS = 4


def limits(bucket: str, endpoint: str, key: str, size: int, folder: Path) -> dict[str, float]:
    """Bytes/s of GETs that keep nothing, and of zeros that are written.

    Args:
        bucket: address of the bucket.
        endpoint: of the server.
        key: of the large object.
        size: its bytes.
        folder: on the disk; needs room for as many.
    """
    source = open_source(bucket, StoreOptions(endpoint=endpoint))
    obj = next(obj for obj in source.objects(key.rpartition("/")[0]) if obj.key == key)

    def fetch(start: int, length: int) -> None:
        for _ in source.stream(obj, thread_buffer(), start, length):
            pass

    found = {"one GET to nowhere": _rate(size, lambda: fetch(0, size))}
    with ThreadPoolExecutor(STREAMS) as pool:
        found[f"ranged GETs, {STREAMS} at once, to nowhere"] = _rate(
            size, lambda: list(pool.map(lambda start: fetch(start, PART_BYTES), range(0, size, PART_BYTES)))
        )
    for name, flags in (("zeros to the disk", 0), ("zeros to the disk past the page cache", os.O_DIRECT)):
        path = folder / "zeros.bin"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags)
        zeros = memoryview(thread_buffer())[:BLOCK]
        try:
            found[name] = _rate(size, lambda fd=fd, zeros=zeros: [os.write(fd, zeros) for _ in range(size // BLOCK)])
        finally:
            os.close(fd)
            path.unlink()
    return found


def _rate(size: int, action) -> float:  # type: ignore[no-untyped-def]
    began = time.perf_counter()
    action()
    return size / (time.perf_counter() - began)
