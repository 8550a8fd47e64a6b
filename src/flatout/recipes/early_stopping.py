"""Stop when the score has not improved for some epochs, and say so."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flatout.recipes.interfaces import EpochRecord


def better(metric: str, score: float, than: float, min_delta: float = 0.0) -> bool:
    """True if a score is better than another: losses fall, accuracies rise."""
    return score < than - min_delta if metric.endswith("loss") else score > than + min_delta


def best_record(records: Sequence[EpochRecord], metric: str) -> EpochRecord | None:
    """The epoch with the best score; the earliest of equals; None if nothing was scored."""
    best: EpochRecord | None = None
    for record in records:
        score = record.metrics.get(metric, math.nan)
        if math.isfinite(score) and (best is None or better(metric, score, best.metrics[metric])):
            best = record
    return best


class Patience:
    """A policy: ends a fit after ``patience`` epochs without a better score."""

    def __init__(self, metric: str, patience: int, min_delta: float, epochs: int) -> None:
        """Wait for ``metric`` to become better by ``min_delta``."""
        self._metric, self._patience, self._min_delta = metric, patience, min_delta
        self._epochs = epochs
        self._best: EpochRecord | None = None

    @property
    def planned_epochs(self) -> int:
        """All epochs of the recipe."""
        return self._epochs

    def resumed(self, records: Sequence[EpochRecord]) -> str | None:
        """Re-evaluate the epochs trained before a resume."""
        self._best = None
        said = [self.after_epoch(record) for record in records]
        return said[-1] if said else None

    def after_step(self, epoch: int, step: int) -> str | None:
        """Never ends an epoch."""
        return None

    def after_epoch(self, record: EpochRecord) -> str | None:
        """The reason to stop, once patience is over."""
        score = record.metrics.get(self._metric)
        if score is None:
            return None
        if math.isfinite(score) and (
            self._best is None or better(self._metric, score, self._best.metrics[self._metric], self._min_delta)
        ):
            self._best = record
            return None
        if self._best is None:
            return None
        waited = record.epoch - self._best.epoch
        if waited < self._patience:
            return None
        return (
            f"no better {self._metric} than {self._best.metrics[self._metric]:.4g} of epoch {self._best.epoch + 1} "
            f"for {waited} epochs"
        )


def share_after_best(records: Sequence[EpochRecord], metric: str) -> float | None:
    """Share of the training time that was spent after the best epoch."""
    best = best_record(records, metric)
    if best is None:
        return None
    took = [record.train_s + record.validation_s + record.checkpoint_s for record in records]
    after = sum(t for t, record in zip(took, records, strict=True) if record.epoch > best.epoch)
    return after / sum(took) if sum(took) else None
