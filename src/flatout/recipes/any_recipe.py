"""Recipes of all tasks, by the name of the task."""

from __future__ import annotations

from typing import Any

from flatout.recipes.schema import Recipe
from flatout.recipes.volume_schema import VolumeRecipe

AnyRecipe = Recipe | VolumeRecipe
IMAGES = "image-classification"
KINDS: dict[str, type[Recipe] | type[VolumeRecipe]] = {IMAGES: Recipe, "volume-segmentation": VolumeRecipe}


def kind_of(tree: Any) -> type[Recipe] | type[VolumeRecipe]:
    """The kind that a recipe's keys ask for; that of images where they name no task, or none that there is."""
    task = tree.get("task", IMAGES) if isinstance(tree, dict) else IMAGES
    return KINDS.get(task, Recipe) if isinstance(task, str) else Recipe
