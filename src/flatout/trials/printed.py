"""The end of what a command printed, for messages."""

from __future__ import annotations

import textwrap
from pathlib import Path

from flatout.terminal_text import readable

_LINES = 8
_READ_BYTES = 64 << 10
_WIDEST = 200
_LEAST_TEXT = 20  # characters for each that is none


def last_lines(log: Path, begin: int = 0) -> tuple[str, ...]:
    """The last lines that a command printed, from a place in the log.

    Of a progress bar that rewrites its line the last state counts; lines that are no text are left out.
    """
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(begin, file.tell() - _READ_BYTES))
            raw = file.read().split(b"\n")
    except OSError:
        return ()
    lines = [readable(line.rstrip(b"\r").rpartition(b"\r")[2]).strip() for line in raw]
    shown = [line for line in lines if line and _is_text(line)]
    return tuple(textwrap.shorten(line, _WIDEST, placeholder=" ...") for line in shown[-_LINES:])


def _is_text(line: str) -> bool:
    return _LEAST_TEXT * (line.count("\N{REPLACEMENT CHARACTER}") + line.count("\\x")) <= len(line)
