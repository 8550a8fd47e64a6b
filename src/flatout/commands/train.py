"""``flatout train``: train by a recipe."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands.options import AsJson, Data, Live, Quiet, RecipeName, RecipeSettings
from flatout.terminal_text import one_line

if TYPE_CHECKING:
    from flatout.recipes.any_recipe import AnyRecipe
    from flatout.recipes.interfaces import Fit

RUNS = Path(".flatout/trainings")
# Options that set a key of the recipe.
_KEYS = {
    "--data": "data.root",
    "--epochs": "training.epochs",
    "--batch-size": "training.batch_size",
    "--max-time": "training.max_time",
    "--wandb-project": "logging.wandb_project",
    "--wandb-name": "logging.wandb_name",
}
MaxTime = Annotated[
    str | None, typer.Option("--max-time", metavar="TIME", help="A deadline, such as 11m: epochs are planned to fit.")
]
AllowChanges = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-change",
        metavar="KEY",
        help="With --resume: this key of the recipe may differ now (`data`: the images). May be repeated.",
    ),
]
TrainingFolder = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FOLDER", help=f"Checkpoints and metrics. Default: {RUNS}/RECIPE-N."),
]
Record = Annotated[bool, typer.Option("--record/--no-record", help="Record where the time goes, for `flatout report`.")]


def train(
    recipe: RecipeName,
    data: Data = None,
    epochs: Annotated[int | None, typer.Option("--epochs", metavar="N", help="Passes over the data.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", metavar="N", help="Images per step.")] = None,
    max_time: MaxTime = None,
    settings: RecipeSettings = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint in --output.")] = False,
    allow_changes: AllowChanges = None,
    output: TrainingFolder = None,
    no_wandb: Annotated[bool, typer.Option("--no-wandb", help="Turn Weights & Biases off.")] = False,
    wandb_project: Annotated[
        str | None, typer.Option("--wandb-project", metavar="NAME", help="Weights & Biases project.")
    ] = None,
    wandb_name: Annotated[
        str | None, typer.Option("--wandb-name", metavar="NAME", help="Weights & Biases run name.")
    ] = None,
    record: Record = True,
    live: Live = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train by a recipe: a timm model on folders or a table.

    Checkpoints, metrics.csv, the resolved recipe and the class names go to one folder. Under torchrun the same
    command trains on several GPUs.

    Example: flatout train imagenet100-resnet50 --data /mnt/nvme/imagenet
    """
    from flatout import extras

    extras.require("train")
    given: dict[str, object] = {
        "--data": data,
        "--epochs": epochs,
        "--batch-size": batch_size,
        "--max-time": max_time,
        "--set": settings,
        "--no-wandb": no_wandb,
        "--wandb-project": wandb_project,
        "--wandb-name": wandb_name,
        "--no-record": not record,
        "--live": live,
        "--json": as_json,
        "--quiet": quiet,
    }
    folder = output or _new_folder(Path(recipe).stem, resume)
    try:
        fit = _trained(recipe, given, settings or (), folder, resume, allow_changes or (), record, quiet)
    except KeyboardInterrupt:
        if _first():  # not wrapped, so that it can be pasted
            print(f"stopped; continue with:\n{one_line(resume_command(recipe, folder, given))}", file=sys.stderr)
        raise typer.Exit(130) from None
    if _first():
        from flatout.recipes.summary import write_summary

        write_summary(fit)
        from flatout.recipes.reading import read_any_recipe

        _tell(fit, as_json, read_any_recipe(recipe).task == "volume-segmentation")


def _resolved(
    recipe: str,
    given: Mapping[str, object],
    settings: Sequence[str],
    folder: Path,
    resume: bool,
    allow_changes: Sequence[str],
) -> AnyRecipe:
    """Read the recipe with the options applied; refuse one that cannot train.

    Raises:
        UsageError: an option, a key or a value is not usable.
    """
    from flatout.commands.auto_batch_size import LEAST, batch_size_of, found_batch_size
    from flatout.errors import UsageError
    from flatout.recipes.demo_data import demo_data_folder, make_demo_data, needs_demo_data
    from flatout.recipes.reading import check_key, has_no_batch_size, read_any_recipe

    if given["--live"] and (given["--no-record"] or int(os.environ.get("WORLD_SIZE", "1")) > 1):
        why = "--no-record leaves nothing to show" if given["--no-record"] else "several processes are not recorded"
        raise UsageError(f"--live: {why}: leave it out")
    for key in allow_changes:
        check_key(key, "--allow-change")
    if allow_changes and not resume:
        raise UsageError("--allow-change: belongs to --resume: leave it out, or give --resume")
    flags: dict[str, object | None] = {key: given[option] for option, key in _KEYS.items()}
    flags["logging.wandb"] = "off" if given["--no-wandb"] else None
    search = has_no_batch_size(recipe, settings, flags)
    if search:
        began_with = batch_size_of(folder) if resume else None
        flags["training.batch_size"], search = began_with or LEAST, began_with is None
    notes: list[str] = []
    resolved = read_any_recipe(recipe, settings, flags, notes)
    # These import torch: a mistake in the recipe is told before.
    from flatout.recipes.lean_start import import_lightning

    import_lightning()
    from flatout.recipes.output_folder import check_output
    from flatout.recipes.prerequisites import check_prerequisites

    check_prerequisites(resolved)
    for note in notes if _first() else ():
        print(one_line(note), file=sys.stderr)
    check_output(folder, resume)
    from flatout.recipes.volume_demo import demo_volumes_folder, make_demo_volumes, needs_demo_volumes

    if needs_demo_data(recipe, resolved):
        flags["data.root"] = str(make_demo_data(demo_data_folder()))
    elif needs_demo_volumes(recipe, resolved):
        flags["data.root"] = str(make_demo_volumes(demo_volumes_folder()))
    if search:
        flags["training.batch_size"] = found_batch_size(recipe, resolved, settings, flags)
    return read_any_recipe(recipe, settings, flags)


def _trained(
    recipe: str,
    given: Mapping[str, object],
    settings: Sequence[str],
    folder: Path,
    resume: bool,
    allow_changes: Sequence[str],
    record: bool,
    quiet: bool,
) -> Fit:
    """Train; a folder that was made for a training that is refused is removed again."""
    from flatout.recipes.lean_start import no_collections
    from flatout.recipes.refused import left_as_it_was

    def report(line: str) -> None:
        if _first():
            line = one_line(line)
            print(textwrap.fill(line, 80, subsequent_indent="  ", break_on_hyphens=False), file=sys.stderr)

    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    with left_as_it_was(folder) if _first() else nullcontext():
        with no_collections():
            resolved = _resolved(recipe, given, settings, folder, resume, allow_changes)
            # These import torch, which takes seconds: a mistake in the recipe is told before.
            from flatout.recipes.pipeline import pipeline_of
            from flatout.recipes.training import train_recipe

            data = pipeline_of(resolved).open_data(resolved)
        with _recording(record and alone, Path(recipe).stem, bool(given["--live"])) as start_recording:
            return train_recipe(
                resolved,
                data,
                folder,
                resume=resume,
                allowed=frozenset(allow_changes),
                report=report,
                show_progress=not quiet,
                before_training=start_recording,
                began=_process_start(),
            )


def _first() -> bool:
    """True if this is the only process of the training, or the one that prints for all."""
    return int(os.environ.get("RANK", "0")) == 0


def resume_command(recipe: str, folder: Path, options: Mapping[str, object]) -> str:
    """The command that resumes a training, to be pasted into a shell.

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
    """Start of this process on the monotonic clock: a deadline counts the imports, too."""
    import time

    import psutil

    return time.monotonic() - (time.time() - psutil.Process().create_time())


@contextmanager
def _recording(wanted: bool, name: str, live: bool) -> Iterator[Callable[[], None]]:
    """Yields a function that starts the recording, which ends with the block; calling it again does nothing.

    Args:
        wanted: there is one.
        name: ends the run folder's name.
        live: show it on a page.
    """
    from flatout.errors import RecordingElsewhere
    from flatout.live.companion import live_page
    from flatout.watching import watch

    with ExitStack() as open_:
        page = open_.enter_context(live_page())  # it ends after the recording, and shows its end
        coming = iter([watch(name=name)] if wanted else [])

        def start() -> None:
            for recording in coming:
                try:
                    run = open_.enter_context(recording)
                except RecordingElsewhere as error:
                    print(one_line(f"not recorded: {error}; the training goes on"), file=sys.stderr)
                    return
                if live and run is not None:
                    page.start(run)

        yield start


def _tell(fit: Fit, as_json: bool, volumes: bool) -> None:
    if as_json:
        from flatout.recipes import summary

        print(json.dumps(summary.as_json(fit)))
        return
    if fit.stopped:
        print(f"stopped early: {one_line(fit.stopped)}")
    for note in fit.notes:
        print(f"note: {one_line(note)}")
    if fit.best is not None:
        print(f"best epoch: {(fit.best_epoch or 0) + 1} (file names and metrics.csv count from 0)")
        print(f"  {fit.best}")
    for name, value in sorted(fit.metrics.items()):
        print(f"  {name:<12} {value:.5g}")
    if fit.best is not None:
        # Not wrapped, so that it can be pasted.
        output = "predictions" if volumes else "submission.csv"
        words = ["flatout", "infer", str(fit.folder), "--data", "FOLDER", "--output", output]
        print(f"Predict with it:\n{one_line(shlex.join(words))}")
