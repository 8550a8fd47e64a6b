"""What a fit needs of an image classification: model, loaders, steps, and the files beside its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from flatout.atomic_file import write_atomically
from flatout.loader.augment import Augmentation
from flatout.loader.image_loader import ImageLoader
from flatout.recipes.chance import at_chance
from flatout.recipes.data_config import resolve_images
from flatout.recipes.datasets import open_data, save_classes, save_original_indices
from flatout.recipes.image_task import ImageTask
from flatout.recipes.interfaces import EpochRecord, ImageData
from flatout.recipes.models import build_model, without_weights
from flatout.recipes.ranks import Ranks
from flatout.recipes.resolved import describe_images
from flatout.recipes.schema import Recipe
from flatout.terminal_text import one_line
from flatout.units import counted

BAD_FILES = "bad_files.txt"


class ImagePipeline:
    """Image classification, see :class:`flatout.recipes.pipeline.Pipeline`."""

    def resolve(self, recipe: Recipe) -> tuple[Recipe, str]:
        """Fill in what the model's weights were trained with."""
        return resolve_images(recipe)

    def open_data(self, recipe: Recipe) -> ImageData:
        """The images."""
        return open_data(recipe)

    def build_model(self, recipe: Recipe, data: ImageData, *, weights: bool) -> nn.Module:
        """A model of timm."""
        model = build_model(recipe if weights else without_weights(recipe), len(data.classes))
        return model.to(memory_format=torch.channels_last) if recipe.training.channels_last else model

    @contextmanager
    def loaders(self, recipe: Recipe, data: ImageData, ranks: Ranks) -> Iterator[tuple[ImageLoader, ImageLoader]]:
        """Of training and validation."""
        rank, world, _ = ranks
        with (
            make_loader(recipe, data, True, rank, world) as train,
            make_loader(recipe, data, False, rank, world, train.choice.workers) as validation,
        ):
            yield train, validation

    def make_task(
        self, recipe: Recipe, model: nn.Module, data: ImageData, lr: float, report: Callable[[str], None]
    ) -> ImageTask:
        """The steps."""
        return ImageTask(recipe, model, len(data.classes), lr, report)

    def describe(self, recipe: Recipe, data: ImageData, loader: ImageLoader) -> tuple[list[str], str]:
        """Lines on data and loader, and the line on memory of batches."""
        return describe_images(recipe, data, loader.choice)

    def save_beside(self, data: ImageData, folder: Path) -> None:
        """Write the class names, and the places of drawn ones among all."""
        save_classes(folder, data.classes)
        save_original_indices(folder, data)

    def warning(self, recipe: Recipe, data: ImageData, records: Sequence[EpochRecord]) -> str | None:
        """Whether validation stays at chance."""
        return at_chance(records, len(data.classes), recipe.training)

    def trained(self, folder: Path, train: ImageLoader, validation: ImageLoader) -> list[str]:
        """List the images that could not be decoded."""
        if not (train.bad or validation.bad):
            return []
        bad = sorted({(image.where, image.reason) for image in (*train.bad, *validation.bad)})
        write_atomically(folder / BAD_FILES, "".join(f"{one_line(at)}\t{one_line(why)}\n" for at, why in bad))
        return [f"{counted(len(bad), 'image')} could not be decoded and were replaced: bad_files.txt lists them"]


def make_loader(
    recipe: Recipe, data: ImageData, training: bool, rank: int = 0, world: int = 1, workers: int | None = None
) -> ImageLoader:
    """The training or validation loader of a recipe; ``workers``: this many, without a new measurement."""
    images = recipe.images
    assert images.size is not None and images.validation_crop is not None, "resolve_images comes first"
    source = data.train if training or data.validation is None else data.validation
    return ImageLoader(
        source,
        data.train_indices if training else data.validation_indices,
        size=images.size,
        batch_size=(not training and recipe.training.validation_batch_size) or recipe.training.batch_size,
        training=training,
        seed=recipe.training.seed,
        rank=rank,
        world_size=world,
        crop_scale=images.crop_scale,
        crop_ratio=images.crop_ratio,
        validation_crop=images.validation_crop,
        squash=images.crop_mode == "squash",
        flip=images.flip,
        augmentation=Augmentation(
            vertical_flip=images.vertical_flip,
            policy=images.policy,
            magnitude=images.policy_magnitude,
            deviation=images.policy_deviation,
            probability=images.policy_probability,
            operations=images.policy_operations,
            jitter=images.colour_jitter,
            jitter_probability=images.colour_jitter_probability,
            grey=images.grey,
            blur=images.blur,
        ),
        interpolation=images.interpolation or "bilinear",
        repeats=images.repeats,
        splits=recipe.training.splits,
        decoder=images.decoder,
        scaled_decode=images.scaled_decode,
        backend=images.backend if training else "threads",
        workers=workers or images.workers,
        prefetch_batches=images.prefetch_batches,
        bad_files=recipe.data.bad_files,
        pin_memory=torch.cuda.is_available(),
    )
