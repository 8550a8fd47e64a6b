"""The recipes that ship with flatout, by name."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path

from flatout.errors import UsageError


def shipped() -> dict[str, Path]:
    """Name -> file of every shipped recipe."""
    folder = Path(str(files("flatout.recipes") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_recipe(name_or_path: str) -> Path:
    """The file of a recipe.

    Raises:
        UsageError: neither a file nor a shipped recipe; the nearest names are given.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        if not path.is_file():
            raise UsageError(f"{name_or_path}: no such recipe file")
        return path
    known = shipped()
    if name_or_path in known:
        return known[name_or_path]
    near = difflib.get_close_matches(name_or_path, known, 1, 0.4)
    hint = f"did you mean {near[0]}?" if near else f"shipped are {', '.join(known)}"
    raise UsageError(f"{name_or_path}: no recipe of that name, and no file: {hint}")
