"""The guide's place in a project: a section of AGENTS.md, or a skill file."""

from __future__ import annotations

import io
from pathlib import Path

from flatout.errors import UsageError
from flatout.report.project_files import BOM, Change, line_end, read

BEGIN, END = "<!-- flatout: begin -->", "<!-- flatout: end -->"
_SKILL = (
    "---\n"
    "name: fast-training\n"
    "description: Find what makes a PyTorch training slow, fit it into a deadline, prove each change; with flatout.\n"
    "---\n\n"
)


def section_change(path: Path, guide: str) -> Change:
    """The guide as a section between two marks: in place of an earlier one, else at the end of the file.

    A mark is a line of its own; one that a sentence mentions is text like any other.

    Raises:
        UsageError: the file cannot be read, or its marks do not enclose one section.
    """
    before = read(path)
    bom = BOM if before and before.startswith(BOM) else ""
    text = (before or "").removeprefix(BOM)
    end = line_end(text)
    section = f"{BEGIN}\n{guide}\n{END}\n".replace("\n", end)
    lines = list(io.StringIO(text, newline=""))  # unlike splitlines, at line ends only
    marks = [(number, line.strip()) for number, line in enumerate(lines) if line.strip() in (BEGIN, END)]
    if marks:
        if [mark for _, mark in marks] != [BEGIN, END]:
            raise UsageError(f"{path}: {BEGIN} and {END} do not enclose one section: remove these lines, and try again")
        (first, _), (last, _) = marks
        return Change(path, before, bom + "".join(lines[:first]) + section + "".join(lines[last + 1 :]))
    gap = "" if not text or text.endswith(2 * end) else end if text.endswith("\n") else 2 * end
    return Change(path, before, bom + text + gap + section)


def skill_change(path: Path, guide: str) -> Change:
    """The guide as a skill file of its own.

    Raises:
        UsageError: the file cannot be read.
    """
    return Change(path, read(path), f"{_SKILL}{guide}\n")
