"""From a batch to images and targets for the model, and to the loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn

from flatout.errors import UsageError
from flatout.loader.device_transforms import Finish
from flatout.recipes.image_sections import Training
from flatout.recipes.schema import Recipe


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
        cutmix_range=training.cutmix_range,
        mix_probability=training.mix_probability,
        cutmix_share=training.cutmix_share,
        mix_mode=training.mix_mode,
        mix_off_epoch=training.mix_off_epoch,
        # Torch's loss smooths mixed targets itself, those of timm do not.
        mix_smoothing=0.0 if training.loss == "cross-entropy" else training.label_smoothing,
        erasing=images.erasing,
        erasing_mode=images.erasing_mode,
        erasing_count=images.erasing_count,
        seed=training.seed,
        channels_last=training.channels_last,
    )


def make_criterion(training: Training) -> nn.Module:
    """The loss, of class indices or of a distribution over the classes."""
    from timm import loss

    made: nn.Module
    smoothing = training.label_smoothing
    if training.loss == "bce":
        options = {} if training.bce_positive_weight is None else {"pos_weight": training.bce_positive_weight}
        threshold, whole = training.bce_threshold, training.bce_sum
        made = loss.BinaryCrossEntropy(smoothing, target_threshold=threshold, sum_classes=whole, **options)
    elif training.loss == "poly":
        made = loss.PolyCrossEntropy(training.poly_epsilon, smoothing=smoothing)
    elif training.loss == "jsd":
        made = loss.JsdCrossEntropy(training.splits, smoothing=smoothing)
    elif training.loss == "asymmetric":
        made = loss.AsymmetricLossSingleLabel(eps=smoothing)
    else:
        made = nn.CrossEntropyLoss(label_smoothing=smoothing)
    return made


def check_loss(training: Training) -> None:
    """Check that the installed timm has the loss.

    Raises:
        UsageError: it is too old.
    """
    try:
        make_criterion(training)
    except (AttributeError, TypeError):
        from timm import __version__

        raise UsageError(
            f"training.loss: {training.loss}: timm {__version__} does not have it: pip install --upgrade timm"
        ) from None


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
