"""One reusable read buffer per thread."""

from __future__ import annotations

import mmap
import threading

BUFFER_BYTES = 4 << 20
_mine = threading.local()


def thread_buffer() -> memoryview:
    """This thread's buffer of 4 MiB, page-aligned; valid until the thread asks for it again.

    The kernel would clear freshly mapped memory for each object, page by page.
    """
    buffer: memoryview | None = getattr(_mine, "buffer", None)
    if buffer is None:
        buffer = _mine.buffer = memoryview(mmap.mmap(-1, BUFFER_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    return buffer
