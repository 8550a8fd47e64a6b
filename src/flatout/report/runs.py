"""The list of recorded runs as a table, and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from flatout.record import RunEntry
from flatout.report.layout import Glyphs, left, right, shorten_middle
from flatout.units import duration

_COMMAND_MIN = 16


def table(entries: Sequence[RunEntry], *, now: datetime, width: int, unicode: bool = True) -> list[str]:
    """Lay the list out: header and one line a run; only the command is shortened.

    Args:
        entries: What to list.
        now: What ages are counted to.
        width: Columns to stay within, unless the ids alone are wider.
        unicode: False writes ASCII only.
    """
    glyphs = Glyphs(unicode)
    rows = [["run", "started", "start-up to end", "ended", "command"]]
    for entry in entries:
        recorded = "-" if entry.recorded_s is None else duration(entry.recorded_s)
        command = shlex.join(entry.command) if entry.command else "-"
        row = [entry.id, _age(entry.started, now), recorded, _ended(entry), command]
        rows.append([glyphs.text(cell) for cell in row])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    room = max(_COMMAND_MIN, width - sum(widths) - 8)
    return [
        "  ".join(
            [
                left(row[0], widths[0]),
                right(row[1], widths[1]),
                right(row[2], widths[2]),
                left(row[3], widths[3]),
                shorten_middle(row[4], room, glyphs.ellipsis),
            ]
        )
        for row in rows
    ]


def _age(started: str, now: datetime) -> str:
    """The age of a run in its largest unit; its start date if that is not in the past."""
    try:
        start = datetime.fromisoformat(started)
    except ValueError:
        return "-"
    if start.tzinfo is None:
        start = start.replace(tzinfo=UTC)
    seconds = (now - start).total_seconds()
    if seconds < 0:
        return started[:10]
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{int(seconds // unit_s)} {unit} ago"
    return f"{int(seconds)} s ago"


def _ended(entry: RunEntry) -> str:
    return entry.ending.words if entry.readable else "unreadable"


def to_dict(entry: RunEntry) -> dict[str, Any]:
    """One run for ``--json``."""
    return {
        "id": entry.id,
        "path": str(entry.path),
        "started": entry.started or None,
        "command": list(entry.command),
        "stop": entry.ending.stop,
        "exit_code": entry.ending.exit_code,
        "recorded_s": entry.recorded_s,
        "readable": entry.readable,
    }
