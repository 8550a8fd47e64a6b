"""The guide's place in a project: a section of AGENTS.md, or a skill file; what would change, and the change."""

from __future__ import annotations

import difflib
import shutil
from dataclasses import dataclass
from pathlib import Path

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError

BEGIN, END = "<!-- flatout: begin -->", "<!-- flatout: end -->"
_SKILL = (
    "---\n"
    "name: fast-training\n"
    "description: Find what makes a PyTorch training slow, fit it into a deadline, prove each change; with flatout.\n"
    "---\n\n"
)


@dataclass(frozen=True)
class Change:
    """A file before and after."""

    path: Path
    before: str | None  # None: there is none
    after: str

    @property
    def diff(self) -> str:
        """What changes, as a unified diff; empty: nothing does."""
        before = (self.before or "").splitlines(keepends=True)
        name = str(self.path)
        return "".join(difflib.unified_diff(before, self.after.splitlines(keepends=True), name, name))

    def write(self) -> Path | None:
        """Write the file; returns where the one before was copied to, if there was one and it changes.

        Raises:
            UsageError: it cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            backup = None
            if self.before is not None and self.before != self.after:
                backup = _free(self.path)
                shutil.copy2(self.path, backup)
            write_atomically(self.path.resolve(), self.after)
            return backup
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written ({error.strerror}); nothing was changed") from None


def section_change(path: Path, guide: str) -> Change:
    """The guide as a section between two marks: in place of an earlier one, else at the end of the file.

    Raises:
        UsageError: the file cannot be read, or only one of the marks is in it.
    """
    before = _read(path)
    section = f"{BEGIN}\n{guide}\n{END}\n"
    text = before or ""
    begins, ends = text.count(BEGIN), text.count(END)
    if (begins, ends) not in ((0, 0), (1, 1)) or (begins and text.index(BEGIN) > text.index(END)):
        raise UsageError(f"{path}: {BEGIN} and {END} do not enclose one section: remove these lines, and try again")
    if begins:
        head, rest = text[: text.index(BEGIN)], text[text.index(END) + len(END) :].removeprefix("\n")
        return Change(path, before, head + section + rest)
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return Change(path, before, text + gap + section)


def skill_change(path: Path, guide: str) -> Change:
    """The guide as a skill file of its own.

    Raises:
        UsageError: the file cannot be read.
    """
    return Change(path, _read(path), f"{_SKILL}{guide}\n")


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"{path}: cannot be read ({why}); nothing was changed") from None


def _free(path: Path) -> Path:
    """A name for the copy of the file before that no file has."""
    number = 0
    while (backup := path.with_name(f"{path.name}.before-flatout{f'-{number}' if number else ''}")).exists():
        number += 1
    return backup
