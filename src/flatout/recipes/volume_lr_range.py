"""Learning-rate range test of a segmentation of volumes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flatout.errors import UsageError
from flatout.loader.patch_loader import PatchBatch
from flatout.recipes.lr_range import RangeTest, sweep
from flatout.recipes.ranks import Ranks
from flatout.recipes.volume_pipeline import VolumePipeline
from flatout.recipes.volume_schema import VolumeRecipe


def volume_range_test(
    recipe: VolumeRecipe,
    *,
    min_lr: float,
    max_lr: float,
    num_training: int,
    watch: Callable[[int, float, float], None],
) -> RangeTest:
    """Train with growing rates on augmented patches, see :func:`flatout.recipes.lr_range.range_test`.

    Raises:
        UsageError: the recipe or its volumes are not usable, or rates and steps form no range.
    """
    pipeline = VolumePipeline()
    recipe, _ = pipeline.resolve(recipe)
    if recipe.patches.per_epoch < recipe.training.batch_size:
        raise UsageError(
            f"training.batch_size: {recipe.training.batch_size} is more than the {recipe.patches.per_epoch} "
            "patches of patches.per_epoch"
        )
    data = pipeline.open_data(recipe)
    torch.manual_seed(recipe.training.seed)
    model = pipeline.build_model(recipe, data, weights=True)
    task = pipeline.make_task(recipe, model, data, min_lr, lambda line: None)
    task = task.to("cuda" if torch.cuda.is_available() else "cpu")

    def loss_of(batch: PatchBatch, step: int) -> Tensor:
        # Soft Dice is subtracted: with its weight added, 0 is the best that the loss can be.
        return task.loss_of(batch, step) + recipe.training.dice

    with pipeline.loaders(recipe, data, Ranks(0, 1, 1)) as (loader, _):
        return sweep(
            recipe,
            task,
            loader,
            loss_of,
            batch_size=recipe.training.batch_size,
            min_lr=min_lr,
            max_lr=max_lr,
            num_training=num_training,
            watch=watch,
        )
