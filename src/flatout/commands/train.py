"""``flatout train``: train by a recipe."""

from __future__ import annotations

import json as json_format
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.terminal_text import one_line

if TYPE_CHECKING:
    from flatout.recipes.interfaces import Fit

RUNS = Path(".flatout/trainings")


def train(
    recipe: Annotated[
        str, typer.Argument(help="A shipped recipe (`flatout recipes` lists them) or a YAML file.", show_default=False)
    ],
    data: Annotated[str | None, typer.Option("--data", metavar="FOLDER", help="Where the images are.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", metavar="N", help="Passes over the data.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", metavar="N", help="Images a step.")] = None,
    max_time: Annotated[
        str | None, typer.Option("--max-time", metavar="TIME", help="A deadline, such as 11m: epochs are planned in.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of the recipe; may be repeated.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint of --output.")] = False,
    allow_changes: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-change",
            metavar="KEY",
            help="With --resume: this key of the recipe may differ now (`data`: the images); may be repeated.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help=f"Checkpoints and metrics; default: {RUNS}/RECIPE-N."),
    ] = None,
    no_wandb: Annotated[
        bool, typer.Option("--no-wandb", help="No Weights & Biases, whatever the recipe says.")
    ] = False,
    wandb_project: Annotated[str | None, typer.Option("--wandb-project", metavar="NAME", help="Its project.")] = None,
    wandb_name: Annotated[str | None, typer.Option("--wandb-name", metavar="NAME", help="Its run name.")] = None,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Record where the time goes, for `flatout report`.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="The final metrics as JSON on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train by a recipe: a timm model on folders or a table.

    Checkpoints, metrics.csv, the resolved recipe and the class names go to one folder. Under torchrun the same
    command trains on several GPUs.

    Example: flatout train imagenet100-resnet50 --data /mnt/nvme/imagenet --epochs 10
    """
    from flatout import extras

    extras.require("train")
    import os

    from flatout.errors import UsageError
    from flatout.recipes.datasets import open_data
    from flatout.recipes.output_folder import check_output
    from flatout.recipes.prerequisites import check_prerequisites
    from flatout.recipes.reading import check_key, read_recipe
    from flatout.recipes.summary import write_summary

    flags: dict[str, object | None] = {
        "data.root": data,
        "training.epochs": epochs,
        "training.batch_size": batch_size,
        "training.max_time": max_time,
        "logging.wandb": "off" if no_wandb else None,
        "logging.wandb_project": wandb_project,
        "logging.wandb_name": wandb_name,
    }
    for key in allow_changes or ():
        check_key(key, "--allow-change")
    if allow_changes and not resume:
        raise UsageError("--allow-change: belongs to --resume: leave it out, or give --resume")
    resolved = read_recipe(recipe, settings or (), flags)
    folder = output or _new_folder(Path(recipe).stem, resume)
    check_prerequisites(resolved)
    check_output(folder, resume)
    if resolved.data.root is None and recipe == "demo":
        from flatout.recipes.demo_data import demo_data_folder, make_demo_data

        flags["data.root"] = str(make_demo_data(demo_data_folder()))
        resolved = read_recipe(recipe, settings or (), flags)
    first = int(os.environ.get("RANK", "0")) == 0

    def report(line: str) -> None:
        if first:
            line = one_line(line)
            print(textwrap.fill(line, 80, subsequent_indent="  ", break_on_hyphens=False), file=sys.stderr)

    again = resume_command(
        recipe,
        folder,
        {
            "--data": data,
            "--epochs": epochs,
            "--batch-size": batch_size,
            "--max-time": max_time,
            "--set": settings,
            "--no-wandb": no_wandb,
            "--wandb-project": wandb_project,
            "--wandb-name": wandb_name,
            "--no-record": not record,
            "--json": json,
            "--quiet": quiet,
        },
    )
    images = open_data(resolved)
    from flatout.recipes.training import train_recipe

    try:
        with _recording(record and int(os.environ.get("WORLD_SIZE", "1")) == 1, Path(recipe).stem) as start_recording:
            fit = train_recipe(
                resolved,
                images,
                folder,
                resume=resume,
                allowed=frozenset(allow_changes or ()),
                report=report,
                show_progress=not quiet,
                before_training=start_recording,
                began=_process_start(),
            )
    except KeyboardInterrupt:
        if first:  # not wrapped, so that it can be pasted
            print(f"stopped; go on with:\n{one_line(again)}", file=sys.stderr)
        raise typer.Exit(130) from None
    if first:
        write_summary(fit)
        _tell(fit, json)


def resume_command(recipe: str, folder: Path, options: Mapping[str, object]) -> str:
    """The command that goes on with a training, to be pasted into a shell.

    Args:
        recipe: as it was given.
        folder: where the checkpoints are.
        options: as they were given: a value, a list of values, True for a switch; None or False: not given.
    """
    words = ["flatout", "train", recipe]
    for name, value in options.items():
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            for one in value if isinstance(value, list) else [value]:
                words += [name, str(one)]
    return shlex.join([*words, "--output", str(folder), "--resume"])


def _new_folder(name: str, resume: bool) -> Path:
    """The next folder of this recipe; the latest one to resume."""
    taken = [
        int(path.name.rpartition("-")[2]) for path in RUNS.glob(f"{name}-*") if path.name.rpartition("-")[2].isdigit()
    ]
    return RUNS / f"{name}-{max(taken, default=0) + (0 if resume and taken else 1)}"


def _process_start() -> float:
    """When this process began, on the monotonic clock: a deadline counts the imports, too."""
    import time

    import psutil

    return time.monotonic() - (time.time() - psutil.Process().create_time())


@contextmanager
def _recording(wanted: bool, name: str) -> Iterator[Callable[[], None]]:
    """Gives what starts the recording, which ends with the block; called again, it does nothing."""
    from flatout.watching import watch

    with ExitStack() as open_:
        coming = iter([watch(name=name)] if wanted else [])

        def start() -> None:
            for recording in coming:
                open_.enter_context(recording)

        yield start


def _tell(fit: Fit, json: bool) -> None:
    if json:
        from flatout.recipes.summary import as_json

        print(json_format.dumps(as_json(fit)))
        return
    if fit.stopped:
        print(f"stopped early: {one_line(fit.stopped)}")
    for note in fit.notes:
        print(f"note: {one_line(note)}")
    for name, value in sorted(fit.metrics.items()):
        print(f"  {name:<12} {value:.5g}")
    if fit.best is not None:
        print(f"best epoch: {fit.best_epoch}, {fit.best}")
        # Not wrapped, so that it can be pasted.
        words = ["flatout", "predict", str(fit.folder), "--data", "FOLDER", "--output", "submission.csv"]
        print(f"Predict with it:\n{one_line(shlex.join(words))}")
