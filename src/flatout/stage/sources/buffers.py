"""Memory that bytes pass through: one piece for each thread, used again and again."""

from __future__ import annotations

import mmap
import threading

BUFFER_BYTES = 4 << 20
_mine = threading.local()


def thread_buffer() -> memoryview:
    """4 MiB of this thread's own, beginning at a page; what it holds lasts until the thread asks again.

    New memory for each object would be cleared by the kernel each time, page by page.
    """
    buffer: memoryview | None = getattr(_mine, "buffer", None)
    if buffer is None:
        buffer = _mine.buffer = memoryview(mmap.mmap(-1, BUFFER_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    return buffer
