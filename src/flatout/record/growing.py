"""Files of a recording that still goes on, read a part at a time: each read gives only what is new."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flatout.probe import events as layout
from flatout.record.events import EVENT_DTYPE, Events, no_events
from flatout.record.json_files import open_regular

BLOCK_BYTES = EVENT_DTYPE.itemsize << 11
MOST_BLOCKS = 128  # per read; a longer backlog is read in the next ones
MOST_LINE_BYTES = 4 << 20  # per read


class EventsTail:
    """Follows one events file. Between reads it is closed: a training may have thousands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = layout.HEADER_BYTES

    def read(self) -> Events:
        """The events that were written since the last read; none when the file cannot be read."""
        found = []
        try:
            with open_regular(self.path) as file:
                file.seek(self._offset)
                for _ in range(MOST_BLOCKS):
                    data = file.read(BLOCK_BYTES)
                    new = _written(data)
                    self._offset += new.nbytes
                    found.append(new)
                    if new.nbytes < BLOCK_BYTES:
                        break
        except (OSError, ValueError):
            pass
        return np.concatenate(found) if found else no_events()


def _written(data: bytes) -> Events:
    """The events of a block up to the first that is not written, or only in part: its kind comes before its start."""
    whole = np.frombuffer(data, EVENT_DTYPE, len(data) // EVENT_DTYPE.itemsize)
    unwritten = np.flatnonzero((whole["kind"] == 0) | (whole["start"] == 0))
    return np.asarray(whole[: unwritten[0]] if len(unwritten) else whole)


class LinesTail:
    """Follows a file of lines, such as system.jsonl or the names of a process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def read(self) -> list[bytes]:
        """The lines that were completed since the last read; none when the file cannot be read."""
        try:
            with open_regular(self.path) as file:
                file.seek(self._offset)
                data = file.read(MOST_LINE_BYTES)
        except (OSError, ValueError):
            return []
        end = data.rfind(b"\n") + 1
        if not end and len(data) == MOST_LINE_BYTES:
            end = len(data)  # no line of a recording is as long
        self._offset += end
        return data[:end].splitlines()
