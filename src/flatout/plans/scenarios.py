"""Amounts of work side by side, each with its projected end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flatout.plans.drawing import Draws
from flatout.recipes.epoch_plan import LEAST_EPOCHS_SHARE

CAREFUL = 0.95  # of the drawn trainings that must end in time


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
    and part of the data. Where none of that fits, one epoch of one fold with part of the data.
    """
    folds, epochs = asked.folds, asked.epochs
    wanted = {
        "asked for": asked,
        "fits": fitting(draws, asked, limits),
        "fewer epochs": _work(
            largest(1, epochs, lambda n: _ends(draws, Work(folds, n), limits)), lambda n: Work(folds, n)
        ),
        "fewer folds": _work(
            largest(1, folds, lambda n: _ends(draws, Work(n, epochs), limits)), lambda n: Work(n, epochs)
        ),
        "less data": _work(
            largest(1, 19, lambda n: _ends(draws, Work(folds, epochs, n / 20), limits)),
            lambda n: Work(folds, epochs, n / 20),
        ),
    }
    if not any(work for name, work in wanted.items() if name != "asked for"):
        wanted["one epoch"] = _work(
            largest(1, 99, lambda n: _ends(draws, Work(1, 1, n / 100), limits)), lambda n: Work(1, 1, n / 100)
        )
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
        in_time=_probability(ends_s <= limits.deadline_s),
        price=None if limits.price_per_hour is None else expected_s / 3600 * limits.price_per_hour,
    )


def _probability(drawn: npt.NDArray[np.bool_]) -> float:
    """Of an event, from draws: the middle of the posterior with Jeffreys' prior, so never 0 nor 1."""
    return float((drawn.sum() + 0.5) / (drawn.size + 1))


def fitting(draws: Draws, asked: Work, limits: Limits) -> Work | None:
    """The most work that ends in time, cut in the order of ``flatout train``; None: not even one epoch does."""
    return cut(asked, lambda folds, epochs: _ends(draws, Work(folds, epochs, asked.subset), limits))


def cut(asked: Work, fits: Callable[[int, int], bool], *, least_folds: int = 1, least_epochs: int = 1) -> Work | None:
    """The most folds and epochs that fit; None: nothing does.

    First epochs of each fold are dropped, down to a third; then folds; then epochs of the last fold.

    Args:
        asked: the whole.
        fits: whether so many folds and epochs do; more never fit where less do not.
        least_folds: that must stay, the current one included.
        least_epochs: of the last of them that must stay.
    """
    third = max(1, round(LEAST_EPOCHS_SHARE * asked.epochs))
    folds = largest(least_folds, asked.folds, lambda count: fits(count, third))
    if folds is not None:
        epochs = largest(third, asked.epochs, lambda each: fits(folds, each)) or third
        return Work(folds, max(epochs, least_epochs), asked.subset)
    few = largest(least_epochs, third - 1, lambda each: fits(least_folds, each))
    return None if few is None else Work(least_folds, few, asked.subset)


def largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """The largest number from ``low`` to ``high`` that fits, by bisection; None: none does."""
    if low > high or not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _work(number: int | None, work: Callable[[int], Work]) -> Work | None:
    return None if number is None else work(number)


def _ends(draws: Draws, work: Work, limits: Limits) -> bool:
    """It ends in time in 95% of the drawn trainings."""
    return float(np.quantile(draws.end_s(work.folds, work.epochs, work.subset), CAREFUL)) <= limits.training_s
