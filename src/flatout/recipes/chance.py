"""A training that learns while its validation stays at chance: most often the class indices differ."""

from __future__ import annotations

import math

from flatout.recipes.contract import EpochRecord

LEARNED = 0.95  # the training loss below this share of the loss of guessing
LUCK = 2.0  # accuracy up to this many times that of guessing is no better than guessing
FROM_EPOCH = 1  # the first epoch's mean loss is still that of the beginning


def at_chance(record: EpochRecord, classes: int, label_smoothing: float = 0.0) -> str | None:
    """Whether validation guesses while training learns; the warning in words, with its numbers.

    Guessing among n classes has the loss ln n and the accuracy 1/n. Label smoothing e raises the lowest loss that
    training can reach, so learning is judged by the way from ln n to that floor.

    Args:
        record: one epoch with ``train/loss``, ``val/loss`` and ``val/acc1`` (a share).
        classes: number of classes.
        label_smoothing: of the training loss.
    """
    metrics = record.metrics
    if record.epoch < FROM_EPOCH or not {"train/loss", "val/loss", "val/acc1"} <= metrics.keys():
        return None
    guess = math.log(classes)
    floor = _smoothing_floor(classes, label_smoothing)
    train = metrics["train/loss"]
    if train > floor + LEARNED * (guess - floor):
        return None
    if metrics["val/acc1"] > LUCK / classes or metrics["val/loss"] < guess:
        return None
    return (
        f"training learns (loss {train:.2f}, guessing among {classes} classes gives {guess:.2f}) but validation is at "
        f"chance (loss {metrics['val/loss']:.2f}, acc1 {100 * metrics['val/acc1']:.1f} %, guessing gives "
        f"{100 / classes:.1f} %): check that validation's labels are the same class indices as training's"
    )


def _smoothing_floor(classes: int, smoothing: float) -> float:
    """The lowest cross-entropy against smoothed labels: their entropy."""
    if smoothing <= 0:
        return 0.0
    other = smoothing / classes
    top = 1 - smoothing + other
    return -(top * math.log(top) + (classes - 1) * other * math.log(other))
