"""Whole volumes by trained checkpoints: probabilities plane by plane, in memory for one slab of patches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flatout.errors import UsageError
from flatout.formats.class_list import CLASSES_FILE
from flatout.formats.training_folder import INTENSITY_FILE
from flatout.recipes.checkpoints import read_checkpoint
from flatout.recipes.datasets import load_classes
from flatout.recipes.predicting import find_checkpoints
from flatout.recipes.reading import FILE_NAME, read_any_recipe
from flatout.recipes.volume_pipeline import build_network
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.segmentation.augment import Normalisation
from flatout.segmentation.sliding_window import Planes, Volume, slide

MIRRORS = tuple(axes for count in range(4) for axes in combinations((2, 3, 4), count))


@dataclass(frozen=True)
class Segmenter:
    """Trained networks, ready to predict."""

    recipe: VolumeRecipe
    classes: tuple[str, ...]
    classify: Callable[[Tensor], Tensor]  # stored voxels (n, z, y, x) -> probabilities (n, classes, z, y, x)
    device: torch.device
    checkpoints: tuple[Path, ...]

    def slide(self, volume: Volume, *, first: int = 0, batch: int | None = None) -> Iterator[Planes]:
        """The planes of a volume from ``first`` on, see :func:`flatout.segmentation.sliding_window.slide`."""
        patches = self.recipe.patches
        return slide(
            volume,
            patches.size,
            self.classify,
            len(self.classes),
            overlap=patches.overlap,
            batch=batch or self.recipe.training.validation_batch_size or self.recipe.training.batch_size,
            first=first,
            device=self.device,
        )


def load_segmenter(run: Path, *, mirrored: bool = False) -> Segmenter:
    """The networks of a run folder (the best of each fold), or of one checkpoint.

    Args:
        run: a folder that ``flatout train`` wrote, or a checkpoint.
        mirrored: take the mean over all eight mirror images of a patch.

    Raises:
        UsageError: there is no checkpoint, or it is not of a segmentation of volumes.
    """
    found = find_checkpoints(run)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    networks: list[tuple[Any, Normalisation]] = []
    recipes: list[VolumeRecipe] = []
    named = []
    for path in found:
        recipe = read_any_recipe(str(path.parent / FILE_NAME))
        if not isinstance(recipe, VolumeRecipe):
            raise UsageError(f"{path}: is of an image classification, not of a segmentation of volumes")
        classes = load_classes(path.parent / CLASSES_FILE)
        named.append(classes)
        model = build_network(recipe, len(classes))
        saved = read_checkpoint(path)["state_dict"]
        try:
            model.load_state_dict({key[6:]: value for key, value in saved.items() if key.startswith("model.")})
        except RuntimeError as error:
            first = str(error).strip().splitlines()[0]
            raise UsageError(f"{path}: no checkpoint of {recipe.network.kind}: {first}") from None
        networks.append((model.to(device).eval(), _normalisation(path.parent)))
        recipes.append(recipe)
    if len(set(named)) > 1:
        raise UsageError(f"{run}: its folds have different classes")
    half = device.type == "cuda" and recipes[0].training.precision in ("auto", "bf16", "fp16")
    mirrors = MIRRORS if mirrored else ((),)

    def classify(voxels: Tensor) -> Tensor:
        total: Any = 0.0
        with torch.inference_mode(), torch.autocast(device.type, enabled=half):
            for model, normalise in networks:
                images = normalise(voxels)[:, None].contiguous(memory_format=torch.channels_last_3d)
                for axes in mirrors:
                    made = model(images.flip(axes) if axes else images).float().softmax(1)
                    total = total + (made.flip(axes) if axes else made)
        result: Tensor = total / (len(networks) * len(mirrors))
        return result

    return Segmenter(recipes[0], named[0], classify, device, tuple(found))


def _normalisation(folder: Path) -> Normalisation:
    path = folder / INTENSITY_FILE
    try:
        return Normalisation(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        raise UsageError(f"{path}: missing or damaged: it says what the network's intensities mean") from None


def labels_of(planes: Planes) -> Tensor:
    """Class indices, uint8 (planes, y, x), of the most probable class."""
    return planes.probabilities.argmax(0).to(torch.uint8)
