"""The journal of a packing, from which an interrupted one resumes.

Images are packed in an order that the seed draws from the listing. The journal has one line per image in that order:
its size as written, or why it was left out. Images in whole parts are not read again; an unfinished part is written
again. Another listing, selection or change starts over.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from flatout.atomic_file import write_atomically

PLAN, LINES = "plan.txt", "journal.jsonl"
Line = int | str  # bytes as written, or why the image was left out


class PackingJournal:
    """The journal of one split, in the folder where the split is being written."""

    def __init__(self, folder: Path, plan: str) -> None:
        """Read the journal; empties the folder if it was written by another plan.

        Args:
            folder: made if it does not exist.
            plan: as returned by :func:`plan_of`.

        Attributes:
            lines: one per image, in order.
        """
        self._path = folder / LINES
        about = folder / PLAN
        self.lines: list[Line] = []
        if about.exists() and about.read_bytes() == plan.encode():
            self.lines = _whole_lines(self._path)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            about.write_text(plan, "utf-8")
        self._waiting: list[Line] = []

    def keep(self, count: int) -> None:
        """Forget all lines but the first ``count``."""
        self.lines = self.lines[:count]
        write_atomically(self._path, "".join(f"{json.dumps(line)}\n" for line in self.lines))

    def add(self, line: Line) -> None:
        """Add the line of an image; :meth:`flush` writes it."""
        self._waiting.append(line)

    def flush(self) -> None:
        """Write the added lines; their parts are whole but for the last."""
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in self._waiting)
        self._waiting.clear()


def plan_of(about: Sequence[object], entries: Iterable[Sequence[object]]) -> str:
    """A digest of what is packed, and how."""
    digest = hashlib.sha256(json.dumps(about).encode())
    for entry in entries:
        digest.update(json.dumps(entry).encode())
    return digest.hexdigest()


def _whole_lines(path: Path) -> list[Line]:
    lines: list[Line] = []
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return lines
    for text_line in text.split("\n")[:-1]:  # the last one may be half written
        try:
            line = json.loads(text_line)
        except ValueError:
            return lines
        if not isinstance(line, int | str) or isinstance(line, bool):
            return lines
        lines.append(line)
    return lines
