"""JSON lines: numbers of a training's own, and texts, as in Kaggle's logs and the transcripts of agents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from flatout.logs.observations import Kind, Observation
from flatout.logs.readers import console, prose
from flatout.logs.readers.json_rows import JsonRows
from flatout.logs.text import decoded, lines, quoted

_START = re.compile(rb'^\s*\[?\s*,?\s*\{\s*"')
DEEPEST = 8


def fits(head: bytes, name: str) -> bool:
    """Each of its first lines is a JSON object; Kaggle's are the items of a list, with the comma in front."""
    rows = [row for row in head.split(b"\n")[:4] if row.strip() not in (b"", b"[", b"]")]
    kaggle = b'"stream_name"' in head[:500]
    return bool(rows) and (kaggle or (name.endswith((".jsonl", ".log", ".txt")) and all(map(_START.match, rows))))


def read(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield what the lines of all texts say; Kaggle's seconds count from the start of the run."""
    reader = prose.ProseReader()
    numbers = JsonRows()
    seen = 0
    opened = closed = False
    for number, piece in lines(file, bool):
        opened = opened or (number == 1 and piece.lstrip().startswith(b"["))
        closed = piece.rstrip().endswith(b"]")
        try:
            row = json.loads(piece.strip().lstrip(b"[,").rstrip(b",]") or b"null")
        except (ValueError, RecursionError):
            if b'"' in piece:
                yield Observation(Kind.NOTE, labels={"note": f"line {number} is no whole JSON object: it was left out"})
            continue
        for one in numbers.parse(row):
            one.line = one.line or number
            one.text = one.text or quoted(decoded(piece))
            yield one
        time_s = row.get("time") if isinstance(row, dict) and "stream_name" in row else None
        for said in _texts(row, 0):
            for line in re.split(r"[\r\n]+", said):
                seen += len(line)
                observed = console.parse_line(
                    line.encode("utf-8", "replace"), reader if seen < console.PROSE_BYTES else None
                )
                shown = quoted(decoded(line.encode("utf-8", "replace"))) if observed else ""
                for one in observed:
                    one.line, one.text = number, shown
                    if isinstance(time_s, int | float):
                        one.time_s = float(time_s)
                        one.labels["note"] = "its times are seconds since its start"
                yield from observed
    if opened and not closed:
        yield Observation(Kind.NOTE, labels={"note": "its list has no end: it was cut off, or is being written"})


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) > 4:
            yield value
    elif depth < DEEPEST:
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for part in parts:
            yield from _texts(part, depth + 1)
