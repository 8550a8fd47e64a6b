"""The shipped recipes and their keys, a section at a time, so that an answer stays small."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from pydantic import BaseModel

from flatout import extras
from flatout.errors import UsageError


def recipe_keys(recipe: str | None, section: str | None, file_of: Callable[[str], str]) -> dict[str, str]:
    """Names of the shipped recipes, sections of one, or keys of a section; each with a sentence.

    Args:
        recipe: a shipped recipe, or a file; None: all shipped ones.
        section: of it; None: all of them.
        file_of: the path of a file that a client may read.

    Raises:
        UsageError: no such recipe or section, its file lies elsewhere, or the extra ``train`` is not installed.
    """
    extras.require("train")
    from flatout.recipes.catalogue import shipped
    from flatout.recipes.reading import read_any_recipe

    if recipe is None:
        if section is not None:
            raise UsageError(f"section {section}: of which recipe? Give recipe: {', '.join(shipped())}")
        return {name: read_any_recipe(name).about for name in shipped()}
    found = read_any_recipe(recipe if recipe in shipped() else file_of(recipe))
    sections = {name: field.description or "" for name, field in type(found).model_fields.items()}
    if section is None:
        return sections
    if section not in sections:
        raise UsageError(f"section {section[:60]}: {recipe} has {', '.join(sections)}")
    value = getattr(found, section)
    kinds = (type(value), *get_args(type(found).model_fields[section].annotation))
    kind = next((one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)), None)
    if kind is None:
        return {section: f"{sections[section]}: {value}"}
    # A section that is null here, such as the folds, has the defaults of its keys.
    return {
        f"{section}.{name}": f"{field.description}: {field.get_default() if value is None else getattr(value, name)}"
        for name, field in kind.model_fields.items()
    }
