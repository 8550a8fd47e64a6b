"""The meanings of the ids in a process's events: loaders, stacks, places in code, texts, files."""

from __future__ import annotations

from collections.abc import Iterable
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


class NamesReading:
    """A names file in the making: what its lines say so far."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[str, Any]] = {}
        self._workers: list[dict[str, Any]] = []
        self._files: dict[str, Any] = {}
        self.damaged = 0  # lines
        self.fields: list[str] = []  # that were dropped

    def take(self, line: bytes) -> None:
        """Take in the next line."""
        entry = _entry(line, self.fields)
        if entry is None:
            self.damaged += bool(line.strip())
            return
        merged = self._entries.setdefault(entry["id"], {})
        merged.update(entry)
        if merged.get("type") == "workers":
            self._workers.append(dict(merged))
        elif merged.get("type") == "files":
            self._files = dict(merged)

    def names(self, problems: Iterable[str] = ()) -> Names:
        """What was said; the entries grow with further lines."""
        return Names(self._entries, tuple(self._workers), self._files, tuple(problems))


def read_names(path: Path) -> Names:
    """Read a names file; damaged lines and fields are skipped and reported in ``problems``."""
    reading = NamesReading()
    problems = []
    try:
        for line in read_lines(path):
            reading.take(line)
    except EndlessLineError as error:
        problems.append(f"{path.name}: {error}: the names from there on are missing")
    except (OSError, ValueError) as error:
        return Names(problems=(f"{path.name} cannot be read ({error}): names are missing",))
    if reading.damaged:
        problems.append(f"{path.name}: {counted(reading.damaged, 'damaged line')} left out, some names are missing")
    if reading.fields:
        problems.append(f"{path.name}: {listed(reading.fields)}")
    return reading.names(problems)


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
