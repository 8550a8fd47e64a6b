"""Dice of each class, from counts of voxels that can be added up over patches, volumes and processes."""

from __future__ import annotations

import torch
from torch import Tensor


def overlap_counts(predicted: Tensor, labels: Tensor, classes: int, ignore: int) -> Tensor:
    """Float64 (classes, 3): true positives, false positives and false negatives of each class.

    Args:
        predicted: class indices.
        labels: of the same shape; voxels of the label ``ignore`` do not count.
        classes: number of classes.
        ignore: a label that is no class.
    """
    counted = labels != ignore
    # One bin a pair of classes; what is left out goes to a bin of its own.
    pairs = torch.where(counted, labels.long() * classes + predicted.long(), classes * classes)
    confusion = torch.bincount(pairs.flatten(), minlength=classes * classes + 1)[:-1].view(classes, classes).double()
    both = confusion.diagonal()
    return torch.stack([both, confusion.sum(0) - both, confusion.sum(1) - both], 1)


def dice_scores(counts: Tensor) -> Tensor:
    """Dice of each class: 2 TP / (2 TP + FP + FN); NaN for one that is neither predicted nor there."""
    both, false, missed = counts.unbind(1)
    return 2 * both / (2 * both + false + missed)


def mean_dice(counts: Tensor) -> float:
    """Mean over the classes but the first, of those that are predicted or there; NaN where none is."""
    scores = dice_scores(counts)[1:]
    return float(scores[~scores.isnan()].mean())
