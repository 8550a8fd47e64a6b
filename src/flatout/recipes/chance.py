"""Whether an epoch of a recipe validates at chance."""

from __future__ import annotations

from flatout.diagnose import chance
from flatout.recipes.contract import EpochRecord

FROM_EPOCH = 1  # the first epoch's mean loss is still that of the beginning


def at_chance(record: EpochRecord, classes: int, label_smoothing: float = 0.0) -> str | None:
    """``flatout.diagnose.chance.at_chance`` for an epoch; None where it is too early to say.

    Args:
        record: one epoch with ``train/loss``, ``val/loss`` and ``val/acc1`` (a share).
        classes: number of classes.
        label_smoothing: of the training loss.
    """
    metrics = record.metrics
    if record.epoch < FROM_EPOCH or not {"train/loss", "val/loss", "val/acc1"} <= metrics.keys():
        return None
    return chance.at_chance(metrics["train/loss"], metrics["val/loss"], metrics["val/acc1"], classes, label_smoothing)
