"""Bytes and JSON from an untrusted folder: reads are bounded and never block."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

# Far above what a recording writes, far below what would fill the memory.
MOST_BYTES = 64 << 20
MOST_LINE_BYTES = 8 << 20


class EndlessLineError(ValueError):
    """A line is longer than any that is written; the rest of the file is not read."""


@contextmanager
def open_regular(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file to read.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is something else. A FIFO or a device would never end, or never begin.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        yield file


def is_regular(path: Path) -> bool:
    """True if ``path`` is a regular file; False too for a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """The JSON value in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is too large, no regular file, or not JSON (see ``parse``).
    """
    with open_regular(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"larger than {most_bytes >> 20} MiB")
    return parse(data)


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, one at a time, up to the first that is too long.

    Raises:
        OSError: the file cannot be read.
        EndlessLineError: a line is too long; those before it were given.
        ValueError: it is no regular file.
    """
    with open_regular(path) as file:
        number = 0
        while line := file.readline(MOST_LINE_BYTES):
            number += 1
            if len(line) == MOST_LINE_BYTES and not line.endswith(b"\n"):
                what = "NUL bytes" if line.endswith(b"\0") else "one line"
                raise EndlessLineError(f"line {number} is more than {MOST_LINE_BYTES >> 20} MiB of {what}")
            yield line.rstrip(b"\r\n")


def parse(data: bytes) -> Any:
    """Parse JSON. NaN and infinities come through: the decoder of the field refuses them.

    Raises:
        ValueError: it is not JSON, nested too deeply, or holds a number of thousands of digits.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
