"""Amounts of work side by side, each with its projected end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from flatout.plans.costs import Costs
from flatout.recipes.epoch_plan import plan

_NORMAL90 = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True)
class Scenario:
    """One amount of work. Its times are predictions, in seconds after the start of the command."""

    name: str
    folds: int
    epochs: int  # of each fold
    work: float  # share of the work asked for: less work, not throughput
    expected_s: float
    optimistic_s: float  # 5% of runs end before
    conservative_s: float  # 5% of runs end after
    in_time: float  # probability of ending before the deadline
    price: float | None  # of the expected time; None: no price was given


def project(
    costs: Costs, deadline_s: float, folds: int, epochs: int, reserve_s: float, price_per_hour: float | None
) -> tuple[Scenario, ...]:
    """What was asked for, and less of it: the most that ends in time even in the conservative case, and one fold.

    Work is dropped in the order of ``flatout.recipes.epoch_plan``.
    """
    slow = math.exp(_NORMAL90 * costs.error)
    fixed_s = costs.startup_s + (costs.ending_s or 0.0) + reserve_s
    made = plan(
        deadline_s - fixed_s,
        epoch_s=costs.epoch_s * slow,
        fold_overhead_s=costs.startup_s,
        epochs=epochs,
        folds=folds,
    )
    wanted = {(folds, epochs): "asked for"}
    if made.fits:
        wanted.setdefault((made.folds, made.epochs), "fits")
    wanted.setdefault((1, epochs), "one fold")
    scenarios = []
    for (count, each), name in wanted.items():
        varying_s = count * each * costs.epoch_s
        constant_s = fixed_s + (count - 1) * costs.startup_s
        expected_s = constant_s + varying_s
        scenarios.append(
            Scenario(
                name=name,
                folds=count,
                epochs=each,
                work=count * each / (folds * epochs),
                expected_s=expected_s,
                optimistic_s=constant_s + varying_s / slow,
                conservative_s=constant_s + varying_s * slow,
                in_time=_in_time(deadline_s - constant_s, varying_s, costs.error),
                price=None if price_per_hour is None else expected_s / 3600 * price_per_hour,
            )
        )
    return tuple(scenarios)


def _in_time(left_s: float, needed_s: float, error: float) -> float:
    """Probability that log-normal work of ``needed_s`` ends within ``left_s``."""
    if left_s <= 0:
        return 0.0
    if error <= 0:
        return float(needed_s <= left_s)
    return NormalDist(0.0, error).cdf(math.log(left_s / needed_s))
