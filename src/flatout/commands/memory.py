"""``flatout memory``: GPU memory of a step by batch size, even without a GPU."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flatout.commands.options import RUNS_DIR, AsJson, Command, Quiet, RunsDir

GPUS = ("16GB", "24GB", "40GB", "80GB")


def memory(
    command: Command = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu",
            metavar="SIZE",
            help=f"Memory of a GPU to fit: 24GB. May be repeated. Default: {', '.join(GPUS)}.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS_DIR,
    quiet: Quiet = False,
) -> None:
    """Predict the GPU memory of a step by batch size.

    The second step of the unchanged command is tracked, tensor by tensor, at its own batch size and at twice that,
    on whatever device it runs. The script ends after it.

    Example: flatout memory --gpu 24GB --gpu 80GB -- python train.py
    """
    from flatout.ceilings.step_memory import track_steps
    from flatout.errors import CommandError
    from flatout.predict.step_memory import fit_steps
    from flatout.report.memory import lines, to_dict
    from flatout.runner.command import check_command
    from flatout.units import parse_size

    words = check_command(command, "flatout memory")
    gpus = {text: parse_size(text, option="--gpu") for text in gpu or GPUS}
    steps = track_steps(words, runs_dir, quiet)
    try:
        line = fit_steps(steps)
    except ValueError as error:
        raise CommandError(f"{error}: the model's first argument is no batch of tensors") from None
    typer.echo(json.dumps(to_dict(line, steps, gpus), indent=2) if as_json else "\n".join(lines(line, steps, gpus)))
