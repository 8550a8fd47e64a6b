"""``flatout ceilings``: what the device and the data path could do, each alone."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flatout.ceilings.measuring import Ceilings


_PARTS = {
    "device": "the device and the loop",
    "preparation": "preparing batches takes longer than that by",
    "bytes": "and getting their bytes the first time by",
    "together": "both at once: shared cores, hand-over, pauses",
}


def ceilings(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="The training command, just as you run it.", show_default=False),
    ] = None,
    seconds: Annotated[
        str, typer.Option("--seconds", metavar="TIME", help="Measure each of the three runs for this long.")
    ] = "20s",
    json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
    runs_dir: Annotated[
        Path, typer.Option("--runs-dir", metavar="FOLDER", help="Where runs are recorded.", show_default=True)
    ] = Path(".flatout/runs"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress lines.")] = False,
) -> None:
    """Measure how fast device and data path are alone.

    Three short runs of the unchanged command: as it is; with its first batches replayed, so that none is waited for;
    and with the loader alone, first on new batches, then on the same ones again. Files are not changed.

    Example: flatout ceilings -- python train.py
    """
    from flatout.ceilings.measuring import measure_ceilings
    from flatout.runner.command import check_command
    from flatout.units import parse_seconds

    check_command(command or [])
    found = measure_ceilings(command or [], parse_seconds(seconds, option="--seconds"), runs_dir, quiet)
    if json:
        typer.echo(json_format.dumps({**asdict(found), "headroom": found.headroom, "parts": found.parts()}, indent=2))
    else:
        typer.echo("\n".join(lines(found)))


def lines(found: Ceilings) -> list[str]:
    """For a terminal, at most 80 columns."""
    from flatout.units import factor, percent

    def row(what: str, rate: float | None) -> str:
        known = f"{rate:12,.1f}   {factor(rate / found.live)}" if rate is not None else f"{'not measured':>12}"
        return f"  {what:48}{known}"

    text = [
        f"Batches that cost nothing would make this training {factor(found.headroom)} as fast.",
        "",
        f"  {'':48}{'samples/s':>12}",
        row("the training as it is", found.live),
        row("batches replayed: the device and the loop alone", found.device),
        row("the data path alone, new batches", found.cold),
        row("the data path alone, the same batches again", found.warm),
        "",
    ]
    parts = found.parts()
    if not parts:
        return [*text, "The data path alone was not measured; the messages above may say why."]
    text += ["Of the time of a sample:", *(f"  {_PARTS[name]:52}{percent(part):>8}" for name, part in parts.items())]
    return text
