"""What the ids in a process's events mean: loaders, stacks, places in code, texts, files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Names:
    """The names file of one process, read once."""

    entries: dict[int, dict[str, Any]] = field(default_factory=dict)
    workers: tuple[dict[str, Any], ...] = ()  # every "workers" line, in order of writing
    files: dict[str, Any] = field(default_factory=dict)  # the latest "files" line: counts are cumulative
    problems: tuple[str, ...] = ()

    def get(self, id: int, type: str) -> dict[str, Any]:
        """The entry ``id``, or an empty one when it is missing or of another type."""
        entry = self.entries.get(id)
        return entry if entry is not None and entry.get("type") == type else {}

    def text(self, id: int, missing: str = "") -> str:
        """The text with this id."""
        return str(self.get(id, "text").get("text", missing))

    def of_type(self, type: str) -> dict[int, dict[str, Any]]:
        """All entries of one type, by id."""
        return {id: entry for id, entry in self.entries.items() if entry.get("type") == type}


def read_names(path: Path) -> Names:
    """Read a names file; lines that are not JSON objects are left out and said in ``problems``."""
    entries: dict[int, dict[str, Any]] = {}
    workers: list[dict[str, Any]] = []
    files: dict[str, Any] = {}
    damaged = 0
    for line in path.read_bytes().splitlines():
        entry = _entry(line)
        if entry is None:
            damaged += bool(line.strip())
            continue
        merged = entries.setdefault(entry["id"], {})
        merged.update(entry)
        if merged.get("type") == "workers":
            workers.append(dict(merged))
        elif merged.get("type") == "files":
            files = dict(merged)
    problems = (f"{path.name}: {damaged} damaged line(s) left out, some names are missing",) if damaged else ()
    return Names(entries, tuple(workers), files, problems)


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:  # also what UnicodeDecodeError is
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("id"), int) else None
