"""The page by which flatout tells every process of a run to stop recording, to experiment or to trace."""

import mmap
import os

PAGE_BYTES = 4096


class Control:
    """Read-only view of the run's control page: one byte, shared by all processes."""

    def __init__(self, path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._page = mmap.mmap(fd, PAGE_BYTES, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)

    def command(self):
        """0: record, 1: stop recording, 2: trace now, 3: stop recording and experiment, 4: steps with kept batches."""
        return self._page[0]
