"""``flatout recipes``: the recipes that ship with flatout."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer


def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this recipe's file.", show_default=False)
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="All keys of NAME, with their meanings and values, defaults too.")
    ] = False,
) -> None:
    """List the shipped recipes, or show one.

    Example: flatout recipes demo > mine.yaml

    Example: flatout recipes demo --keys
    """
    from flatout import extras
    from flatout.errors import UsageError

    extras.require("train")
    from flatout.recipes.catalogue import find_recipe, shipped
    from flatout.recipes.reading import every_key, read_any_recipe

    if keys:
        if name is None:
            raise UsageError(f"--keys: of which recipe? Give a name: {', '.join(shipped())}")
        print(every_key(read_any_recipe(name)), end="")
        return
    if name is not None:
        print(find_recipe(name).read_text("utf-8"), end="")
        return
    longest = max(map(len, shipped()))
    for known in shipped():
        line = f"{known:<{longest}}  {read_any_recipe(known).about}"
        print(textwrap.fill(line, 80, subsequent_indent=" " * (longest + 2), break_on_hyphens=False))
    print("\nTrain by one:  flatout train NAME --data FOLDER\nChange one:    flatout recipes NAME > mine.yaml")
    print("All its keys:  flatout recipes NAME --keys")
