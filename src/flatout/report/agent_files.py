"""The guide's place in a project: a section of AGENTS.md, a skill file, the server's entry for MCP clients."""

from __future__ import annotations

import difflib
import json
import shutil
import sys
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
# Files in which clients look for the servers of a project, and under which name. The first is made where none is.
_CLIENTS = (
    (Path(".mcp.json"), "mcpServers"),
    (Path(".cursor/mcp.json"), "mcpServers"),
    (Path(".vscode/mcp.json"), "servers"),
    (Path(".gemini/settings.json"), "mcpServers"),
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


def server_entry(project: Path) -> dict[str, object]:
    """What an MCP client needs to start ``flatout mcp`` for this project, by this environment's interpreter."""
    words = ["-m", "flatout", "mcp", "--root", str(project.resolve())]
    return {"type": "stdio", "command": sys.executable, "args": words}


def entry_changes(project: Path) -> list[Change]:
    """The server's entry in ``.mcp.json``, and in the file of each other client whose folder the project has.

    Raises:
        UsageError: a file cannot be read, or is not the JSON that clients expect.
    """
    first, *others = _CLIENTS
    here = [first, *((path, key) for path, key in others if (project / path.parent).is_dir())]
    return [_entry_change(project / path, key, server_entry(project)) for path, key in here]


def _entry_change(path: Path, key: str, entry: dict[str, object]) -> Change:
    before = _read(path)
    try:
        settings = json.loads(before) if before and before.strip() else {}
    except (ValueError, RecursionError):
        settings = None
    servers = settings.get(key, {}) if isinstance(settings, dict) else None
    if not isinstance(settings, dict) or not isinstance(servers, dict):
        raise UsageError(
            f"{path}: it is not JSON with servers under {key!r} (comments, perhaps); nothing was changed: add what "
            "`flatout agents --mcp` prints by hand"
        )
    if servers.get("flatout") == entry and before is not None:
        return Change(path, before, before)
    settings[key] = {**servers, "flatout": entry}
    return Change(path, before, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


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
