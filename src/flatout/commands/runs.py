"""``flatout runs``: list what has been recorded."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import UTC, datetime

import typer

from flatout.commands.options import RUNS_DIR, AsJson, RunsDir
from flatout.terminal_text import one_line


def runs(as_json: AsJson = False, runs_dir: RunsDir = RUNS_DIR) -> None:
    """List the recorded runs, the latest last.

    Example: flatout runs --json
    """
    from flatout.record import list_runs
    from flatout.report.runs import table, to_dict

    entries = list_runs(runs_dir)
    if as_json:
        typer.echo(json.dumps([to_dict(entry) for entry in entries], indent=2))
        return
    if not entries:
        typer.echo(f"No run in {one_line(str(runs_dir))}. Record one: flatout profile -- python train.py")
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    width = max(console.width, 60) if console.is_terminal else 80
    unicode = (sys.stdout.encoding or "ascii").lower().startswith("utf")
    for line in table(entries, now=datetime.now(UTC), width=width, unicode=unicode):
        console.print(line, markup=False)
    typer.echo(f"\nNext: flatout report {one_line(shlex.quote(entries[-1].id))}")
