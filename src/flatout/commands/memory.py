"""``flatout memory``: what a step takes on a GPU, by batch size, also where there is none."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer


def memory(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="The training command, just as you run it.", show_default=False),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", metavar="SIZE", help="Memory of a GPU to fit: 24GB, 80GB. Again for more."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
    runs_dir: Annotated[
        Path, typer.Option("--runs-dir", metavar="FOLDER", help="Where runs are recorded.", show_default=True)
    ] = Path(".flatout/runs"),
) -> None:
    """Predict the GPU memory of a step by batch size.

    The second step of the unchanged command is tracked, tensor by tensor, at its own batch size and at twice that,
    on whatever device it runs. The script ends after it.

    Example: flatout memory --gpu 24GB --gpu 80GB -- python train.py
    """
    from flatout.ceilings.step_memory import track_steps
    from flatout.errors import CommandError
    from flatout.predict.step_memory import fit_steps
    from flatout.runner.command import check_command
    from flatout.units import parse_size, size

    check_command(command or [])
    sizes = {text: parse_size(text, option="--gpu") for text in gpu or ["16GB", "24GB", "40GB", "80GB"]}
    steps = track_steps(command or [], runs_dir)
    try:
        line = fit_steps(steps)
    except ValueError as error:
        raise CommandError(f"{error}: the model's first argument is no batch of tensors") from None
    if json:
        data = {
            "base_bytes": line.base_bytes,
            "slope_bytes": line.slope_bytes,
            "least_bytes": line.least_bytes,
            "measured_slope": line.measured,
            "steps": [{"batch_size": step.batch_size, "peak_bytes": step.peak_bytes, **step.kinds} for step in steps],
            "largest": {text: line.largest(held) for text, held in sizes.items()},
        }
        typer.echo(json_format.dumps(data, indent=2))
        return
    how = "two batch sizes were tracked" if line.measured else "one was tracked: kinds of tensors tell what grows"
    least = f", at least {size(line.least_bytes)}" if line.least_bytes else ""
    typer.echo(f"memory(b) = {size(line.base_bytes)} + {size(line.slope_bytes)} x b{least}\ntensors only; {how}\n")
    typer.echo(f"  {'batch':>8}{'tensors, tracked':>20}{'of a GPU, predicted':>24}")
    for step in steps:
        typer.echo(f"  {step.batch_size:>8}{size(step.peak_bytes):>20}{size(line.at(step.batch_size)):>24}")
    typer.echo("")
    for text, held in sizes.items():
        typer.echo(f"  {text:>8}: largest batch {line.largest(held):,}")
    typer.echo("\nPredicted: with 1 GiB for CUDA and its libraries, and 5% for fragmentation.")
