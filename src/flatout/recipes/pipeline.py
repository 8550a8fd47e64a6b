"""What a fit needs of a task: the part of a training that differs between images and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from flatout.recipes.any_recipe import AnyRecipe
from flatout.recipes.interfaces import EpochRecord
from flatout.recipes.ranks import Ranks
from flatout.recipes.schema import Recipe
from flatout.recipes.task import TrainedTask


class Pipeline(Protocol):
    """One task. Recipe and data are of its own kinds."""

    def resolve(self, recipe: Any) -> tuple[Any, str]:
        """The recipe with nothing left open, and a line that names the source of the values; it may be empty."""

    def open_data(self, recipe: Any) -> Any:
        """The data of a recipe."""

    def build_model(self, recipe: Any, data: Any, *, weights: bool) -> nn.Module:
        """The network; without ``weights`` those of the recipe are not read, since a checkpoint holds them."""

    def loaders(self, recipe: Any, data: Any, ranks: Ranks) -> AbstractContextManager[tuple[Any, Any]]:
        """The loaders of training and validation."""

    def make_task(
        self, recipe: Any, model: nn.Module, data: Any, lr: float, report: Callable[[str], None]
    ) -> TrainedTask:
        """The steps."""

    def describe(self, recipe: Any, data: Any, loader: Any) -> tuple[list[str], str]:
        """Lines on data and loader before a training, and one on the memory of its batches."""

    def save_beside(self, data: Any, folder: Path) -> None:
        """Write what a prediction needs beside the checkpoints."""

    def warning(self, recipe: Any, data: Any, records: Sequence[EpochRecord]) -> str | None:
        """What is wrong with the epochs so far; None: nothing."""

    def trained(self, folder: Path, train: Any, validation: Any) -> list[str]:
        """Called when a fit has ended; returns notes."""


def pipeline_of(recipe: AnyRecipe) -> Pipeline:
    """The pipeline of a recipe's task."""
    if isinstance(recipe, Recipe):
        from flatout.recipes.image_pipeline import ImagePipeline

        return ImagePipeline()
    from flatout.recipes.volume_pipeline import VolumePipeline

    return VolumePipeline()
