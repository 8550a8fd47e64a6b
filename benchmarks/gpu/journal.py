"""What was measured so far, on disk: a check that was cut off goes on after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flatout.atomic_file import write_atomically


class Journal:
    """Rows by section and item; those of another device or other versions are not taken over.

    Args:
        path: the file.
        conditions: device and versions under which its rows hold.
    """

    def __init__(self, path: Path, conditions: dict[str, str]) -> None:
        self._path, self.conditions = path, conditions
        try:
            held = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            held = {}
        same = isinstance(held, dict) and held.get("conditions") == conditions
        self._rows: dict[str, dict[str, Any]] = held["rows"] if same else {}

    def find(self, section: str, item: str) -> dict[str, Any] | None:
        """A row that was measured; None: not yet, or it failed."""
        row: dict[str, Any] | None = self._rows.get(section, {}).get(item)
        return row if row is not None and row["failed"] is None else None

    def rows(self, section: str) -> dict[str, dict[str, Any]]:
        """All rows of a section, also those that failed."""
        return self._rows.get(section, {})

    def note(self, section: str, item: str, cells: list[str], met: bool | None, failed: str | None = None) -> None:
        """Keep a row."""
        self._rows.setdefault(section, {})[item] = {"cells": cells, "met": met, "failed": failed}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"conditions": self.conditions, "rows": self._rows}, indent=1)
        write_atomically(self._path, text.encode())
