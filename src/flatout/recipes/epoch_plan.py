"""The most folds and epochs that fit into a time: the order in which work is dropped."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_EPOCHS_SHARE = 1 / 3


@dataclass(frozen=True)
class EpochPlan:
    """The work that fits before the deadline."""

    folds: int  # in total, finished ones included
    epochs: int  # of each remaining fold
    needed_s: float  # of the remaining work
    left_s: float

    @property
    def fits(self) -> bool:
        """True if it ends in time."""
        return self.needed_s <= self.left_s


def plan(
    left_s: float,
    *,
    epoch_s: float,
    fold_overhead_s: float,
    epochs: int,
    folds: int,
    folds_done: int = 0,
    epochs_done: int = 0,
) -> EpochPlan:
    """The most work that fits, dropped in the stated order.

    Args:
        left_s: until the deadline, less the reserve.
        epoch_s: one epoch with its validation and checkpoint.
        fold_overhead_s: start and prediction of one fold.
        epochs: the recipe's, each fold.
        folds: the recipe's.
        folds_done: folds that are complete.
        epochs_done: of the current fold.
    """
    least = max(1, round(LEAST_EPOCHS_SHARE * epochs))

    def needed(count: int, each: int) -> float:
        more = max(count - folds_done - 1, 0)
        return max(each - epochs_done, 0) * epoch_s + more * (fold_overhead_s + each * epoch_s)

    for count in range(folds, folds_done, -1):
        for each in range(epochs, least - 1, -1):
            if needed(count, each) <= left_s:
                return EpochPlan(count, each, needed(count, each), left_s)
    for each in range(least - 1, epochs_done, -1):
        if needed(folds_done + 1, each) <= left_s:
            return EpochPlan(folds_done + 1, each, needed(folds_done + 1, each), left_s)
    return EpochPlan(folds_done + 1, max(epochs_done, 1), 0.0 if epochs_done else epoch_s, left_s)
