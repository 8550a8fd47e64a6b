"""``flatout lr-find``: a learning-rate range test."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatout.commands.options import AsJson, Data, RecipeName, RecipeSettings
from flatout.terminal_text import one_line

if TYPE_CHECKING:
    from flatout.recipes.interfaces import ImageData
    from flatout.recipes.lr_range import RangeTest
    from flatout.recipes.schema import Recipe

TIMED_STEPS = 5  # after the first, which also warms up: they predict the time of the rest


def lr_find(
    recipe: RecipeName,
    data: Data = None,
    min_lr: Annotated[float, typer.Option("--min-lr", metavar="LR", help="The first learning rate.")] = 1e-5,
    max_lr: Annotated[float, typer.Option("--max-lr", metavar="LR", help="The last learning rate.")] = 10.0,
    num_training: Annotated[int, typer.Option("--num-training", metavar="N", help="Number of training steps.")] = 100,
    settings: RecipeSettings = None,
    plot: Annotated[Path, typer.Option("--plot", metavar="FILE", help="Where to save the plot.")] = Path(
        "lr_range.png"
    ),
    write: Annotated[bool, typer.Option("--write", help="Write the suggestion into the recipe file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a learning-rate range test, and suggest a rate.

    Trains some steps while the learning rate grows. "No suggestion" is an answer, too, and says why.

    Example: flatout lr-find mine.yaml --data /mnt/nvme/imagenet --write
    """
    try:
        path, found = _measured(recipe, data, settings or (), plot, write, min_lr, max_lr, num_training)
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        raise typer.Exit(130) from None
    from flatout.recipes.lr_range import save_plot, terminal_plot
    from flatout.recipes.reading import write_value

    save_plot(found, plot)
    if as_json:
        print(json.dumps({**found.as_json(), "plot": str(plot)}))
    else:
        print(terminal_plot(found))
        if found.suggestion is None:
            print(f"No suggestion: {found.reason}.")
        else:
            print(f"Suggestion: {found.suggestion:.3g} at {found.batch_size} samples a step:\n  {found.reason}.")
        print(f"Plot: {plot}")
    if write and found.suggestion is not None:
        value = float(f"{found.suggestion:.3g}")
        write_value(path, "optimizer.lr", value, f"range test, {found.batch_size} samples a step")
        write_value(path, "optimizer.lr_batch_size", found.batch_size, "of the range test")
        print(f"{path}: optimizer.lr: {value:g}", file=sys.stderr)


def _measured(
    recipe: str,
    data: str | None,
    settings: Sequence[str],
    plot: Path,
    write: bool,
    min_lr: float,
    max_lr: float,
    num_training: int,
) -> tuple[Path, RangeTest]:
    """The recipe's file and its range test; writes nothing."""
    from flatout import extras

    extras.require("train")
    from flatout.recipes.reading import read_any_recipe

    if read_any_recipe(recipe, settings).task == "volume-segmentation":
        return _of_volumes(recipe, data, settings, plot, write, min_lr, max_lr, num_training)
    path, resolved, images = _prepared(recipe, data, settings, plot, write)
    import torch

    from flatout.recipes.image_pipeline import make_loader
    from flatout.recipes.lr_range import range_test
    from flatout.recipes.models import build_model

    torch.manual_seed(resolved.training.seed)
    model = build_model(resolved, len(images.classes))
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    print(
        f"range test: {num_training} steps of {resolved.training.batch_size} images, "
        f"rates from {min_lr:g} to {max_lr:g}",
        file=sys.stderr,
    )
    with make_loader(resolved, images, True) as loader:
        found = range_test(
            resolved,
            model,
            loader,
            len(images.classes),
            min_lr=min_lr,
            max_lr=max_lr,
            num_training=num_training,
            watch=_progress(num_training),
        )
    return path, found


def _of_volumes(
    recipe: str,
    data: str | None,
    settings: Sequence[str],
    plot: Path,
    write: bool,
    min_lr: float,
    max_lr: float,
    num_training: int,
) -> tuple[Path, RangeTest]:
    """The same for a segmentation of volumes."""
    from flatout.errors import UsageError
    from flatout.recipes.reading import read_any_recipe
    from flatout.recipes.volume_schema import VolumeRecipe

    path = _writable(recipe, write)
    resolved = read_any_recipe(recipe, settings, {"data.root": data})
    assert isinstance(resolved, VolumeRecipe)
    if not plot.parent.is_dir():
        raise UsageError(f"--plot {plot}: no such folder: {plot.parent}")
    from flatout.recipes.prerequisites import check_prerequisites
    from flatout.recipes.volume_lr_range import volume_range_test

    check_prerequisites(resolved.model_copy(update={"logging": type(resolved.logging).model_validate({})}))
    print(
        f"range test: {num_training} steps of {resolved.training.batch_size} patches, "
        f"rates from {min_lr:g} to {max_lr:g}",
        file=sys.stderr,
    )
    watch = _progress(num_training)
    found = volume_range_test(resolved, min_lr=min_lr, max_lr=max_lr, num_training=num_training, watch=watch)
    return path, found


def _writable(recipe: str, write: bool) -> Path:
    """The recipe's file.

    Raises:
        UsageError: there is none, or it should be written and is one of flatout's own.
    """
    from flatout.errors import UsageError
    from flatout.recipes.catalogue import find_recipe, shipped

    path = find_recipe(recipe)
    if write and path in shipped().values():
        raise UsageError(f"--write: {recipe} is shipped: copy it first: flatout recipes {recipe} > mine.yaml")
    return path


def _prepared(
    recipe: str, data: str | None, settings: Sequence[str], plot: Path, write: bool
) -> tuple[Path, Recipe, ImageData]:
    """The recipe's file, the recipe, and its images.

    Raises:
        UsageError: an option, a key or a value is not usable, or there are too few images.
    """
    from flatout.errors import UsageError
    from flatout.recipes.demo_data import demo_data_folder, make_demo_data, needs_demo_data
    from flatout.recipes.reading import read_recipe

    path = _writable(recipe, write)
    resolved = read_recipe(recipe, settings, {"data.root": data})
    if needs_demo_data(recipe, resolved):
        resolved = read_recipe(recipe, settings, {"data.root": str(make_demo_data(demo_data_folder()))})
    # These import torch: a mistake in the recipe is told before.
    from flatout.recipes.lean_start import import_lightning

    import_lightning()
    from flatout.recipes.data_config import resolve_images
    from flatout.recipes.datasets import open_data
    from flatout.recipes.prerequisites import check_prerequisites

    check_prerequisites(resolved.model_copy(update={"logging": type(resolved.logging).model_validate({})}))
    if not plot.parent.is_dir():
        raise UsageError(f"--plot {plot}: no such folder: {plot.parent}")
    resolved, line = resolve_images(resolved)
    images = open_data(resolved)
    for said in (line, *images.notes):
        if said:
            print(one_line(said), file=sys.stderr)
    if len(images.train_indices) < resolved.training.batch_size:
        raise UsageError(
            f"training.batch_size: {resolved.training.batch_size} is more than the {len(images.train_indices)} images"
        )
    return path, resolved, images


def _progress(steps: int, clock: Callable[[], float] = time.monotonic) -> Callable[[int, float, float], None]:
    """The callback for each step: prints every tenth, and once the predicted time of the rest."""
    from flatout.units import duration

    first = 0.0

    def watch(step: int, lr: float, loss: float) -> None:
        nonlocal first
        if step == 0:
            first = clock()
        if step % 10 == 0:
            print(f"step {step}/{steps}  lr {lr:.3g}  loss {loss:.4f}", file=sys.stderr)
        if step == TIMED_STEPS:
            left = (clock() - first) / TIMED_STEPS * (steps - 1 - step)
            print(f"about {duration(left)} for the other {steps - 1 - step} steps", file=sys.stderr)

    return watch
