"""Check for a validation that stays at chance while the training learns."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.diagnose import chance
from flatout.recipes.image_sections import Training
from flatout.recipes.interfaces import EpochRecord

EPOCHS_IN_A_ROW = 2
# Running statistics (momentum 0.1) and weights move fast at first: early validation results say little.
SETTLED_STEPS = 100
AVERAGE_LENGTHS = 3  # of the weights' moving average: 5% of it are then still the initial weights


def at_chance(records: Sequence[EpochRecord], classes: int, training: Training) -> str | None:
    """``flatout.diagnose.chance.at_chance`` of the last epochs, in the words of the last; None if it is too early.

    Args:
        records: the epochs so far, with ``train/loss``, ``val/loss`` and ``val/acc1`` (a share).
        classes: number of classes.
        training: settings that they were trained with.
    """
    settled = SETTLED_STEPS
    if training.ema_decay:
        settled = max(settled, round(AVERAGE_LENGTHS / max(1 - training.ema_decay, 1e-6)))
    last = records[-EPOCHS_IN_A_ROW:]
    steps_then = sum(record.steps for record in records[:-1])  # when the first of them was validated
    if len(last) < EPOCHS_IN_A_ROW or steps_then < settled:
        return None
    said = [_one(record, classes, training.label_smoothing) for record in last]
    return said[-1] if all(said) else None


def _one(record: EpochRecord, classes: int, label_smoothing: float) -> str | None:
    metrics = record.metrics
    if not {"train/loss", "val/loss", "val/acc1"} <= metrics.keys():
        return None
    return chance.at_chance(metrics["train/loss"], metrics["val/loss"], metrics["val/acc1"], classes, label_smoothing)
