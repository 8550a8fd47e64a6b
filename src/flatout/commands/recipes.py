"""``flatout recipes``: the recipes that ship with flatout."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer


def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this recipe's file.", show_default=False)
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="All keys of NAME, with their meanings and values, defaults too.")
    ] = False,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="GPU",
            help="Of volumes: choose patch and batch for this card, a name (A10), a size (24GB) or `here`.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="With --gpu: the staged volumes.", show_default=False),
    ] = None,
) -> None:
    """List the shipped recipes, or show one.

    With --gpu, patch and batch of a recipe for volumes are the largest that are predicted to fit; how is in comments.

    Example: flatout recipes demo > mine.yaml

    Example: flatout recipes demo --keys

    Example: flatout recipes volume-residual-unet --gpu A10 --data staged > mine.yaml
    """
    from flatout import extras
    from flatout.errors import UsageError

    extras.require("train")
    from flatout.recipes.catalogue import find_recipe, shipped
    from flatout.recipes.reading import every_key, read_any_recipe

    for option, given in (("--keys", keys), ("--gpu", gpu is not None), ("--data", data is not None)):
        if given and name is None:
            raise UsageError(f"{option}: of which recipe? Give a name: {', '.join(shipped())}")
    if gpu is not None and name is not None:
        _for_card(name, gpu, data)
    elif data is not None:
        raise UsageError("--data: belongs to --gpu, which chooses patches of these volumes: give both")
    elif keys and name is not None:
        print(every_key(read_any_recipe(name)), end="")
    elif name is not None:
        print(find_recipe(name).read_text("utf-8"), end="")
    else:
        _list(shipped())


def _list(names: dict[str, Path]) -> None:
    from flatout.recipes.reading import read_any_recipe

    longest = max(map(len, names))
    for known in names:
        line = f"{known:<{longest}}  {read_any_recipe(known).about}"
        print(textwrap.fill(line, 80, subsequent_indent=" " * (longest + 2), break_on_hyphens=False))
    print("\nTrain by one:  flatout train NAME --data FOLDER\nChange one:    flatout recipes NAME > mine.yaml")
    print("All its keys:  flatout recipes NAME --keys")


def _for_card(name: str, gpu: str, data: Path | None) -> None:
    """Print a recipe with patch and batch for a card."""
    from flatout.errors import UsageError
    from flatout.recipes.catalogue import find_recipe
    from flatout.recipes.reading import read_any_recipe, with_values
    from flatout.recipes.volume_schema import VolumeRecipe
    from flatout.volumes.staged import read_staged

    recipe = read_any_recipe(name)
    if not isinstance(recipe, VolumeRecipe):
        raise UsageError(f"--gpu {gpu}: {name} trains on images, whose batch training.batch_size: auto finds")
    card, memory_bytes = _card(gpu)
    staged = read_staged(data) if data is not None else None
    from flatout.recipes.patch_choice import choose_patch

    chosen = choose_patch(
        recipe,
        card,
        memory_bytes,
        classes=len(staged.classes) if staged else 2,
        shapes=[case.shape for case in staged.cases if case.label is not None] if staged else (),
        report=lambda line: print(f"flatout: {line}", file=sys.stderr),
    )
    values: dict[str, tuple[object, str]] = {
        "patches.size": (list(chosen.patch), "see above"),
        "training.batch_size": (chosen.batch_size, "see above"),
    }
    if chosen.stages < len(recipe.network.features):
        for key in ("features", "blocks"):
            kept = list(getattr(recipe.network, key)[: chosen.stages])
            values[f"network.{key}"] = (kept, "as many stages as the patch can be halved for")
    print("\n".join(f"# {part}" for line in chosen.lines for part in textwrap.wrap(line, 78)))
    print(with_values(find_recipe(name), values), end="")


def _card(gpu: str) -> tuple[str, int]:
    """Name and bytes of a card.

    Raises:
        UsageError: it is not known, or there is none here.
    """
    from flatout.errors import UsageError
    from flatout.machine.snapshot import take_snapshot
    from flatout.plans.gpu_parts import chosen_part
    from flatout.units import parse_size

    if gpu == "here":
        found = next((one for one in take_snapshot().gpus or () if one.memory_bytes), None)
        if found is None or found.memory_bytes is None:
            raise UsageError("--gpu here: this machine has no GPU: name the one that will train, such as A10 or 24GB")
        return f"{found.name}, seen here", found.memory_bytes
    if gpu[:1].isdigit() and gpu[-1:] in "Bb":
        return gpu, parse_size(gpu, option="--gpu")
    part = chosen_part(gpu)
    return f"{part.name}, assumed ({part.source}, {part.date:%Y-%m-%d})", part.memory_bytes
