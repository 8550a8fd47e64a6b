"""The server's entry in the settings of MCP clients: JSON of the project, all else of which stays."""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.report.project_files import BOM, Change, inside, line_end, read
from flatout.terminal_text import one_line

# Files in which clients look for the servers of a project, and under which name. The first is made where none is.
_CLIENTS = (
    (Path(".mcp.json"), "mcpServers"),
    (Path(".cursor/mcp.json"), "mcpServers"),
    (Path(".vscode/mcp.json"), "servers"),
    (Path(".gemini/settings.json"), "mcpServers"),
)
_START = ["-m", "flatout", "mcp", "--root"]
_BY_HAND = "nothing was changed: add what `flatout agents --mcp` prints by hand"


def server_entry(project: Path) -> dict[str, object]:
    """What an MCP client needs to start ``flatout mcp`` for this project, by this environment's interpreter."""
    return {"type": "stdio", "command": sys.executable, "args": [*_START, str(project.resolve())]}


def entry_changes(project: Path) -> list[Change]:
    """The server's entry in ``.mcp.json``, and in the file of each other client whose folder the project has.

    Raises:
        UsageError: a file cannot be read, or not be written again without a loss.
    """
    first, *others = _CLIENTS
    here = [first, *((path, key) for path, key in others if (project / path.parent).is_dir())]
    return [_entry_change(inside(project, path), key, server_entry(project)) for path, key in here]


def _entry_change(path: Path, key: str, entry: dict[str, object]) -> Change:
    before = read(path)
    text = (before or "").removeprefix(BOM)
    settings = _parsed(path, text) if text.strip() else {}
    if not isinstance(settings, dict):
        raise UsageError(f"{path}: it is {_shown(settings)}, but must be an object, {{...}}; {_BY_HAND}")
    servers = settings.get(key, {})
    if not isinstance(servers, dict):
        raise UsageError(f'{path}: "{key}" is {_shown(servers)}, but must be an object, {{...}}; {_BY_HAND}')
    there = servers.get("flatout")
    if there is not None and not _is_ours(there):
        note = f'its entry "flatout" is your own and stays as it is ({_program(there)}); to have this one, remove it'
        return Change(path, before, before or "", note)
    made = {**(there or {}), **entry}  # with env, and what else was added to it
    if there == made:
        return Change(path, before, before or "")
    settings[key] = {**servers, "flatout": made}
    after = json.dumps(settings, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        after.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{path}: a text in it has half a character (\\ud800 to \\udfff); {_BY_HAND}") from None
    bom = BOM if before and before.startswith(BOM) else ""
    return Change(path, before, bom + after.replace("\n", line_end(text)))


def _is_ours(entry: Any) -> bool:
    """Flatout wrote it: for another folder or interpreter, perhaps."""
    arguments = entry.get("args") if isinstance(entry, dict) else None
    return isinstance(arguments, list) and len(arguments) == len(_START) + 1 and arguments[:-1] == _START


def _program(entry: Any) -> str:
    # Its command alone: env may hold secrets.
    return f"command {_shown(entry.get('command'))}" if isinstance(entry, dict) else _shown(entry)


def _parsed(path: Path, text: str) -> Any:
    """The JSON of a file, if writing it again loses nothing.

    Raises:
        UsageError: it is none, or holds what Python would write differently.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number)
    except _Lossy as error:
        raise UsageError(f"{path}: {error}; {_BY_HAND}") from None
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"{path}: it is not JSON{where} (comments, perhaps); {_BY_HAND}") from None


class _Lossy(Exception):
    """Written again, it would not be the same."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise _Lossy(f"it has {_shown(name)} twice in one object, and one of them would be lost")
        made[name] = value
    return made


def _constant(name: str) -> Any:
    raise _Lossy(f"it has {name}, which is no JSON")


def _number(text: str) -> float:
    value = float(text)
    try:
        same = math.isfinite(value) and Decimal(repr(value)) == Decimal(text)
    except InvalidOperation:  # an exponent that no decimal holds
        same = False
    if not same:
        raise _Lossy(f"it has the number {text[:40]}, which would be written as {value!r}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return one_line(json.dumps(value, ensure_ascii=False))[:60]
