"""What a fit needs of a segmentation of volumes: network, loaders, steps, and the files beside its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from flatout.atomic_file import write_atomically
from flatout.formats.training_folder import INTENSITY_FILE
from flatout.loader.patch_loader import PatchLoader, scoring_plan, training_plan
from flatout.recipes.datasets import save_classes
from flatout.recipes.interfaces import EpochRecord
from flatout.recipes.ranks import Ranks
from flatout.recipes.volume_data import Tiles, VolumeData, open_volumes
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.recipes.volume_task import VolumeTask
from flatout.segmentation.networks import build_unet, lay_out
from flatout.units import size
from flatout.volumes import PatchDataset


class VolumePipeline:
    """Segmentation of volumes, see :class:`flatout.recipes.pipeline.Pipeline`."""

    def resolve(self, recipe: VolumeRecipe) -> tuple[VolumeRecipe, str]:
        """Nothing is left open; the patch has to fit the network."""
        lay_out(recipe.patches.size, recipe.network.features, recipe.network.blocks)
        return recipe, ""

    def open_data(self, recipe: VolumeRecipe) -> VolumeData:
        """The volumes."""
        return open_volumes(recipe)

    def build_model(self, recipe: VolumeRecipe, data: VolumeData, *, weights: bool) -> nn.Module:
        """A U-Net."""
        return build_network(recipe, len(data.classes))

    @contextmanager
    def loaders(
        self, recipe: VolumeRecipe, data: VolumeData, ranks: Ranks
    ) -> Iterator[tuple[PatchLoader, PatchLoader]]:
        """Of training and validation."""
        rank, world, _ = ranks
        patches, training = recipe.patches, recipe.training
        drawn = PatchDataset(
            data.root, patches.size, list(data.train), seed=training.seed, foreground_share=patches.foreground
        )
        batches = patches.per_epoch // (training.batch_size * world)
        held = Tiles(data, patches.size, patches.validation)
        at_once = training.validation_batch_size or training.batch_size
        pin = torch.cuda.is_available()
        with (
            PatchLoader(
                drawn.__getitem__,
                training_plan(batches, training.batch_size, rank, world),
                workers=patches.workers,
                prefetch_batches=patches.prefetch_batches,
                pin_memory=pin,
            ) as train,
            PatchLoader(
                held.__getitem__,
                scoring_plan(len(held), at_once, rank, world),
                workers=train.workers,
                prefetch_batches=patches.prefetch_batches,
                pin_memory=pin,
            ) as validation,
        ):
            yield train, validation

    def make_task(
        self, recipe: VolumeRecipe, model: nn.Module, data: VolumeData, lr: float, report: Callable[[str], None]
    ) -> VolumeTask:
        """The steps."""
        return VolumeTask(recipe, model, data, lr, report)

    def describe(self, recipe: VolumeRecipe, data: VolumeData, loader: PatchLoader) -> tuple[list[str], str]:
        """Lines on data and loader, and the line on memory of batches."""
        patches, batch = recipe.patches, recipe.training.batch_size
        voxels = patches.size[0] * patches.size[1] * patches.size[2]
        all_voxels = sum(shape[0] * shape[1] * shape[2] for shape in (case.shape for case in data.staged.cases))
        stored = data.image(data.train[0]).dtype.itemsize
        count = patches.prefetch_batches + 1
        sides = " × ".join(str(side) for side in patches.size)
        return [
            f"volumes: {data.counts}, {all_voxels / 1e6:,.1f} M voxels, classes: {', '.join(data.classes)}",
            f"patches: {sides} voxels, {100 * patches.foreground:.0f}% of them around foreground; "
            f"{loader.workers} reading threads; augmented on the device",
        ], (
            f"host memory: batches {size(count * batch * voxels * (stored + 1))} = "
            f"({patches.prefetch_batches} in flight + 1) × {batch} × {sides} × {stored + 1} bytes, image and label"
        )

    def save_beside(self, data: VolumeData, folder: Path) -> None:
        """Write the class names, and what stored intensities mean."""
        save_classes(folder, data.classes)
        write_atomically(folder / INTENSITY_FILE, json.dumps(asdict(data.normalisation), indent=1) + "\n")

    def warning(self, recipe: VolumeRecipe, data: VolumeData, records: Sequence[EpochRecord]) -> str | None:
        """Nothing."""
        return None

    def trained(self, folder: Path, train: PatchLoader, validation: PatchLoader) -> list[str]:
        """Nothing."""
        return []


def build_network(recipe: VolumeRecipe, classes: int) -> nn.Module:
    """The network of a recipe, laid out for its patches."""
    network = recipe.network
    layout = lay_out(recipe.patches.size, network.features, network.blocks)
    model = build_unet(network.kind, layout, channels=1, classes=classes, deep_supervision=network.deep_supervision)
    if network.gradient_checkpointing:
        model.checkpoint_activations()
    return model.to(memory_format=torch.channels_last_3d) if recipe.training.channels_last else model
