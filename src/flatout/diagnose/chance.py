"""A training that learns while its validation stays at chance: most often the class indices differ."""

from __future__ import annotations

import math

from flatout.units import percent

LEARNED = 0.95  # the training loss below this share of the loss of guessing
LUCK = 2.0  # accuracy up to this many times that of guessing is no better than guessing


def at_chance(
    train_loss: float, val_loss: float, val_accuracy: float, classes: int, label_smoothing: float = 0.0
) -> str | None:
    """Warn if validation is no better than guessing while training learns; None otherwise.

    Guessing among n classes has the loss ln n and the accuracy 1/n. Label smoothing e raises the lowest loss that
    training can reach, so learning is judged by the way from ln n to that floor.

    Args:
        train_loss: cross-entropy, mean over samples.
        val_loss: the same of the validation.
        val_accuracy: top-1, 0 to 1.
        classes: number of classes, at least 2.
        label_smoothing: of the training loss.
    """
    guess = math.log(classes)
    floor = _smoothing_floor(classes, label_smoothing)
    if train_loss > floor + LEARNED * (guess - floor):
        return None
    if val_accuracy > LUCK / classes or val_loss < guess:
        return None
    return (
        f"training learns (loss {train_loss:.2f}, guessing among {classes} classes gives {guess:.2f}) but validation "
        f"is at chance (loss {val_loss:.2f}, acc1 {percent(val_accuracy, decimals=1)}, "
        f"guessing gives {percent(1 / classes, decimals=1)}): "
        "check that validation's labels are the same class indices as training's"
    )


def _smoothing_floor(classes: int, smoothing: float) -> float:
    """The lowest cross-entropy against smoothed labels: their entropy."""
    if smoothing <= 0:
        return 0.0
    other = smoothing / classes
    top = 1 - smoothing + other
    return -(top * math.log(top) + (classes - 1) * other * math.log(other))
