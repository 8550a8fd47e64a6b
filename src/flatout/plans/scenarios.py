"""Amounts of work side by side, each with its projected end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from flatout.plans.drawing import Draws
from flatout.recipes.epoch_plan import LEAST_EPOCHS_SHARE

CAREFUL = 0.95  # of the drawn trainings that must end in time
LEAST_SUBSET = 0.05  # of the training data


@dataclass(frozen=True)
class Work:
    """How much is trained: less of it is no faster training."""

    folds: int
    epochs: int  # of each fold
    subset: float = 1.0  # share of the training data

    def share_of(self, whole: Work) -> float:
        """Share of another amount."""
        return self.folds * self.epochs * self.subset / (whole.folds * whole.epochs * whole.subset)


@dataclass(frozen=True)
class Scenario:
    """One amount of work. Its times are predictions, in seconds after the start of the command.

    Attributes:
        name: what was done to what was asked for.
        work: the amount.
        share: of what was asked for.
        optimistic_s: 5% of trainings end before.
        expected_s: half of them.
        conservative_s: 5% of them end after.
        in_time: probability of an end before the deadline.
        price: of the expected time; None: no price was given.
    """

    name: str
    work: Work
    share: float
    optimistic_s: float
    expected_s: float
    conservative_s: float
    in_time: float
    price: float | None


@dataclass(frozen=True)
class Limits:
    """What a plan must keep.

    Attributes:
        deadline_s: seconds after the start of the command.
        reserve_s: of them, kept for the last prediction.
        price_per_hour: None: not said.
    """

    deadline_s: float
    reserve_s: float = 0.0
    price_per_hour: float | None = None

    @property
    def training_s(self) -> float:
        """Until when the training must have ended."""
        return self.deadline_s - self.reserve_s


def compare(draws: Draws, asked: Work, limits: Limits) -> tuple[Scenario, ...]:
    """What was asked for, and less of it in the ways that end in time in 95% of the drawn trainings.

    Fewer epochs at first (down to a third), then fewer folds, as ``flatout train`` drops work; each of them alone;
    and part of the data.
    """
    wanted = {
        "asked for": asked,
        "fits": fitting(draws, asked, limits),
        "fewer epochs": _most(draws, limits, (Work(asked.folds, n) for n in range(asked.epochs, 0, -1))),
        "fewer folds": _most(draws, limits, (Work(n, asked.epochs) for n in range(asked.folds, 0, -1))),
        "less data": _most(
            draws,
            limits,
            (Work(asked.folds, asked.epochs, n / 100) for n in range(95, round(100 * LEAST_SUBSET) - 1, -5)),
        ),
    }
    rows: dict[Work, Scenario] = {}
    fits_whole = wanted["fits"] == asked
    for name, work in wanted.items():
        if work is None or work in rows or (fits_whole and name != "asked for"):
            continue
        rows[work] = judge(draws, name, work, asked, limits)
    return tuple(rows.values())


def judge(draws: Draws, name: str, work: Work, asked: Work, limits: Limits) -> Scenario:
    """One amount of work with its ends and its price."""
    ends_s = draws.end_s(work.folds, work.epochs, work.subset) + limits.reserve_s
    optimistic_s, expected_s, conservative_s = (float(end_s) for end_s in np.quantile(ends_s, (0.05, 0.5, 0.95)))
    return Scenario(
        name=name,
        work=work,
        share=work.share_of(asked),
        optimistic_s=optimistic_s,
        expected_s=expected_s,
        conservative_s=conservative_s,
        in_time=float((ends_s <= limits.deadline_s).mean()),
        price=None if limits.price_per_hour is None else expected_s / 3600 * limits.price_per_hour,
    )


def fitting(draws: Draws, asked: Work, limits: Limits) -> Work | None:
    """The most work that ends in time, cut in the order of ``flatout train``; None: not even one epoch does.

    First epochs of each fold, down to a third; then folds; then epochs of the last fold.
    """
    least = max(1, round(LEAST_EPOCHS_SHARE * asked.epochs))
    by_order = [Work(folds, n) for folds in range(asked.folds, 0, -1) for n in range(asked.epochs, least - 1, -1)]
    return _most(draws, limits, [*by_order, *(Work(1, n) for n in range(least - 1, 0, -1))])


def _most(draws: Draws, limits: Limits, works: Iterable[Work]) -> Work | None:
    """The first one that ends in time."""
    for work in works:
        if float(np.quantile(draws.end_s(work.folds, work.epochs, work.subset), CAREFUL)) <= limits.training_s:
            return work
    return None
