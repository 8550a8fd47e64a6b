"""``flatout ceilings``: what the device and the data path could do, each alone."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flatout.commands.options import RUNS_DIR, AsJson, Command, Quiet, RunsDir, seconds_option


def ceilings(
    command: Command = None,
    seconds: Annotated[str, seconds_option(None)] = "20s",
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS_DIR,
    quiet: Quiet = False,
) -> None:
    """Measure how fast the device and the data path are alone.

    Three short runs of the unchanged command: as it is; with its first batches replayed, so that none is waited for;
    and with the loader alone, first on new batches, then on the same ones again. Files are not changed.

    Example: flatout ceilings -- python train.py
    """
    from flatout.ceilings.measuring import measure_ceilings
    from flatout.report.ceilings import lines, to_dict
    from flatout.runner.command import check_command
    from flatout.units import parse_seconds

    words = check_command(command, "flatout ceilings")
    found = measure_ceilings(words, parse_seconds(seconds, option="--seconds"), runs_dir, quiet)
    typer.echo(json.dumps(to_dict(found), indent=2) if as_json else "\n".join(lines(found)))
