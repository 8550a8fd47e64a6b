"""The meanings of the ids in a process's events: loaders, stacks, places in code, texts, files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.record.fields import names_entry
from flatout.record.json_files import EndlessLineError, parse, read_lines
from flatout.units import counted

_MOST_NAMED = 5
_MOST_NAME = 40


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


def read_names(path: Path) -> Names:
    """Read a names file; damaged lines and fields are skipped and reported in ``problems``."""
    entries: dict[int, dict[str, Any]] = {}
    workers: list[dict[str, Any]] = []
    files: dict[str, Any] = {}
    damaged = 0
    fields: list[str] = []
    problems = []
    try:
        for line in read_lines(path):
            entry = _entry(line, fields)
            if entry is None:
                damaged += bool(line.strip())
                continue
            merged = entries.setdefault(entry["id"], {})
            merged.update(entry)
            if merged.get("type") == "workers":
                workers.append(dict(merged))
            elif merged.get("type") == "files":
                files = dict(merged)
    except EndlessLineError as error:
        problems.append(f"{path.name}: {error}: the names from there on are missing")
    except (OSError, ValueError) as error:
        return Names(problems=(f"{path.name} cannot be read ({error}): names are missing",))
    if damaged:
        problems.append(f"{path.name}: {counted(damaged, 'damaged line')} left out, some names are missing")
    if fields:
        problems.append(f"{path.name}: {listed(fields)}")
    return Names(entries, tuple(workers), files, tuple(problems))


def listed(fields: list[str]) -> str:
    """Report the fields that were dropped."""
    named = sorted(set(fields))
    shown = ", ".join(name[:_MOST_NAME] for name in named[:_MOST_NAMED]) + (", …" if len(named) > _MOST_NAMED else "")
    return f"{counted(len(fields), 'damaged value')} left out ({shown})"


def _entry(line: bytes, damage: list[str]) -> dict[str, Any] | None:
    try:
        return names_entry(parse(line), damage)
    except ValueError:  # not JSON, not UTF-8, or no entry
        return None
