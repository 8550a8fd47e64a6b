"""From a batch to images and targets for the model, and to the loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn

from flatout.errors import UsageError
from flatout.loader.device_transforms import Finish
from flatout.recipes.schema import Recipe, Training


def make_finish(recipe: Recipe, classes: int) -> Finish:
    """The processing of a batch on the device; the ``images`` section must be resolved."""
    images, training = recipe.images, recipe.training
    assert images.mean is not None and images.std is not None, "resolve_images comes first"
    return Finish(
        mean=images.mean,
        std=images.std,
        classes=classes,
        channels=recipe.model.in_chans,
        mixup=training.mixup,
        cutmix=training.cutmix,
        mix_probability=training.mix_probability,
        cutmix_share=training.cutmix_share,
        mix_mode=training.mix_mode,
        mix_off_epoch=training.mix_off_epoch,
        # The loss applies label smoothing itself, but not to binary targets.
        mix_smoothing=training.label_smoothing if training.loss == "bce" else 0.0,
        erasing=images.erasing,
        erasing_mode=images.erasing_mode,
        erasing_count=images.erasing_count,
        seed=training.seed,
        channels_last=training.channels_last,
    )


def make_criterion(training: Training) -> nn.Module:
    """The loss, of class indices or of a distribution over the classes."""
    if training.loss == "bce":
        from timm.loss import BinaryCrossEntropy

        made: nn.Module = BinaryCrossEntropy(training.label_smoothing, target_threshold=training.bce_threshold)
        return made
    return nn.CrossEntropyLoss(label_smoothing=training.label_smoothing)


@contextmanager
def first_step(key: str, what: str, batch_size: int) -> Iterator[None]:
    """The first step of a model: a failure there is most often due to its size or that of its samples.

    Args:
        key: of the recipe, to blame.
        what: the model and its samples, in words.
        batch_size: samples at once.

    Raises:
        UsageError: a step fails; the message includes the model's error.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError, ValueError, IndexError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise UsageError(
            f"{key}: the first step of {what}, {batch_size} at once, failed: {reason}: "
            "give another size or training.batch_size"
        ) from error


def first_image_step(recipe: Recipe) -> AbstractContextManager[None]:
    """The first step of a recipe that classifies images."""
    side = recipe.images.size
    what = f"{recipe.model.name} with images of {side} × {side} pixels"
    return first_step("images.size", what, recipe.training.batch_size)
