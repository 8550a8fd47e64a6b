"""Put the text of source lines into a record, once it is closed.

The probe notes only file and line: reading and splitting source files inside the training would cost it milliseconds
at each new stack.
"""

from __future__ import annotations

import json
import linecache
from pathlib import Path
from typing import Any

LONGEST = 160


def add_sources(run: Path) -> None:
    """Complete the stacks and sites of all processes; files that cannot be read leave their text empty."""
    linecache.checkcache()
    for path in (run / "processes").glob("*.names"):
        try:
            lines = path.read_bytes().splitlines()
        except OSError:
            continue
        completed = [_complete(line) for line in lines]
        temporary = path.with_suffix(".names.tmp")
        try:
            temporary.write_bytes(b"".join(line + b"\n" for line in completed))
            temporary.replace(path)
        except OSError:  # the disk is full: the report then shows places without their text
            temporary.unlink(missing_ok=True)


def _complete(line: bytes) -> bytes:
    """One line of a names file with its source texts; unchanged if it is of another type or damaged."""
    try:
        entry: Any = json.loads(line)
        if entry["type"] == "stack":
            for frame in entry["frames"]:
                frame[3] = frame[3] or _source(frame[0], frame[1])
        elif entry["type"] in ("site", "compilation", "graph_break") and "file" in entry:
            entry["source"] = entry.get("source") or _source(entry["file"], entry["line"])
        else:
            return line
    except (ValueError, KeyError, TypeError, IndexError):
        return line
    return json.dumps(entry).encode()


def _source(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
