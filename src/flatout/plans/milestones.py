"""By when how much must be done: the moments at which a plan can no longer end in time, and what fits then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.plans.drawing import Draws
from flatout.plans.scenarios import CAREFUL, Limits, Work, cut

PARTS = (0.25, 0.5, 0.75)
NOTHING_LEFT = 0.02  # share of the time in which nobody could do anything about it


@dataclass(frozen=True)
class Milestone:
    """A fold's epoch that must be over by a time, or else at most 5% of trainings end in time.

    Attributes:
        fold: from 1.
        epoch: from 1, of that fold.
        step: steps done by then, of all folds.
        latest_s: seconds after the start of the command.
        then: the folds and epochs that still fit if it is reached just then; None: nothing more does.
    """

    fold: int
    epoch: int
    step: int
    latest_s: float
    then: Work | None


def milestones(draws: Draws, work: Work, limits: Limits) -> tuple[Milestone, ...]:
    """At a quarter, half and three quarters of the work."""
    found: dict[int, Milestone] = {}
    total = work.folds * work.epochs
    for part in PARTS:
        done = max(round(part * total), 1)
        left = total - done
        if not left or done in found:
            continue
        fold, epoch = (done - 1) // work.epochs + 1, (done - 1) % work.epochs + 1
        folds_left = work.folds - fold
        rest_s = left * draws.epoch_s(work.subset) - draws.between_s + draws.ending_s + folds_left * draws.fold_start_s
        latest_s = limits.training_s - float(np.quantile(rest_s, 1 - CAREFUL))
        if latest_s <= 0 or limits.training_s - latest_s < NOTHING_LEFT * limits.training_s:
            continue
        found[done] = Milestone(
            fold, epoch, done * draws.steps, latest_s, _then(draws, work, limits.training_s - latest_s, fold, epoch)
        )
    return tuple(found.values())


def _then(draws: Draws, work: Work, left_s: float, fold: int, epoch: int) -> Work | None:
    """What ends in time with ``left_s`` left, at the speed that 95% of trainings have."""
    epoch_s, ending_s = (float(np.quantile(values, CAREFUL)) for values in (draws.epoch_s(work.subset), draws.ending_s))

    def fits(folds: int, epochs: int) -> bool:
        further_s = (folds - fold) * (draws.fold_start_s + epochs * epoch_s)
        return max(epochs - epoch, 0) * epoch_s + further_s + ending_s <= left_s

    return cut(work, fits, least_folds=fold, least_epochs=epoch)


def reached(draws: Draws, work: Work, limits: Limits) -> tuple[int, int]:
    """Fold and whole epochs of it that a training of ``work`` is expected to have done when its time is over."""
    epoch_s = float(np.median(draws.epoch_s(work.subset)))
    left_s = limits.training_s - draws.startup_s - draws.first_extra_s * work.subset
    per_fold_s = work.epochs * epoch_s + draws.fold_start_s
    if left_s < 0:
        return 1, 0
    folds = min(int(left_s // per_fold_s), work.folds - 1)
    return folds + 1, min(int((left_s - folds * per_fold_s) // epoch_s), work.epochs)
