"""Dice and cross-entropy with a label that is left out, at every resolution of the network's outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SMOOTH = 1e-5


class SegmentationLoss(nn.Module):  # type: ignore[misc]
    """Weighted mean over resolutions of cross-entropy minus soft Dice (Isensee et al. 2021, nnU-Net).

    The weights halve with each step of resolution.
    """

    def __init__(self, ignore: int, *, dice: float = 1.0, cross_entropy: float = 1.0, batch_dice: bool = True) -> None:
        """Leave voxels of the label ``ignore`` out of both.

        Args:
            ignore: a label that is no class.
            dice: weight of the Dice part.
            cross_entropy: weight of the other.
            batch_dice: one Dice for the whole batch; else the mean of those of its samples.
        """
        super().__init__()
        self.ignore, self.dice, self.cross_entropy, self.batch_dice = ignore, dice, cross_entropy, batch_dice

    def forward(self, outputs: Tensor | Sequence[Tensor], labels: Tensor) -> Tensor:
        """The loss.

        Args:
            outputs: logits (samples, classes, z, y, x); of several resolutions the finest first.
            labels: integers (samples, z, y, x) of the finest.
        """
        levels = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        weights = [0.5**level for level in range(len(levels))]
        total = torch.zeros((), device=labels.device)
        for weight, logits in zip(weights, levels, strict=True):
            total = total + weight / sum(weights) * self._of_one(logits.float(), at_size(labels, logits.shape[2:]))
        return total

    def _of_one(self, logits: Tensor, labels: Tensor) -> Tensor:
        counted = labels != self.ignore
        total = torch.zeros((), device=labels.device)
        if self.cross_entropy:
            each = F.cross_entropy(logits, labels.long(), ignore_index=self.ignore, reduction="sum")
            # A mean would be NaN where all is left out.
            total = total + self.cross_entropy * each / counted.sum().clamp(min=1)
        if self.dice:
            total = total - self.dice * soft_dice(logits.softmax(1), labels, counted, whole_batch=self.batch_dice)
        return total


def soft_dice(probabilities: Tensor, labels: Tensor, counted: Tensor, *, whole_batch: bool) -> Tensor:
    """Mean over the classes but the first of 2 Σ p t / (Σ p + Σ t).

    Args:
        probabilities: (samples, classes, z, y, x).
        labels: (samples, z, y, x).
        counted: bool, of the same shape: what is not counted lies in no sum.
        whole_batch: sums go over all samples.
    """
    over = (0, 1, 2, 3) if whole_batch else (1, 2, 3)
    scores = []
    for index in range(1, probabilities.shape[1]):
        predicted = probabilities[:, index] * counted
        truth = labels == index
        both = (predicted * truth).sum(over)
        size = predicted.sum(over) + truth.sum(over)
        scores.append(((2 * both + SMOOTH) / (size + SMOOTH).clamp(min=1e-8)).mean())
    return torch.stack(scores).mean()


def at_size(labels: Tensor, size: Sequence[int]) -> Tensor:
    """Labels (samples, z, y, x) at a lower resolution: of each new voxel the one in its middle."""
    for axis, length in enumerate(size, start=1):
        before = labels.shape[axis]
        if before != length:
            places = ((torch.arange(length, device=labels.device) + 0.5) * (before / length)).long()
            labels = labels.index_select(axis, places)
    return labels
