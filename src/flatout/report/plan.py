"""A plan into a deadline: as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from flatout.plans.costs import Costs
from flatout.plans.scenarios import Scenario
from flatout.units import duration, percent


def lines(costs: Costs, scenarios: Sequence[Scenario], deadline_s: float, reserve_s: float) -> list[str]:
    """For a terminal."""
    text = [
        f"Measured: start-up {duration(costs.startup_s)}, step {duration(costs.step_s)}, "
        f"epoch {duration(costs.epoch_s)}",
        f"An epoch: {costs.steps} steps, its validation and checkpoint",
        f"Deadline {duration(deadline_s)}, {duration(reserve_s)} of it reserved for prediction",
        "",
        f"{'':<10}{'folds x epochs':>15}{'work':>7}"
        f"{'optimistic':>12}{'expected':>10}{'conservative':>14}{'in time':>9}",
    ]
    for one in scenarios:
        ends = duration(one.optimistic_s), duration(one.expected_s), duration(one.conservative_s)
        text.append(
            f"{one.name:<10}{f'{one.folds} x {one.epochs}':>15}{percent(one.work):>7}"
            f"{ends[0]:>12}{ends[1]:>10}{ends[2]:>14}{percent(one.in_time):>9}"
        )
    if scenarios and scenarios[0].price is not None:
        text += ["", "Price: " + ", ".join(f"{one.name} {one.price:.2f}" for one in scenarios)]
    text += ["", "Predicted. Less work is not throughput: a step takes as long in each row."]
    text += ["Cut first: last epochs of each fold, down to a third; then folds."]
    return [*text, *costs.notes]


def to_dict(costs: Costs, scenarios: Sequence[Scenario], deadline_s: float, reserve_s: float) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "deadline_s": deadline_s,
        "reserve_s": reserve_s,
        "measured": asdict(costs),
        "scenarios": [asdict(one) for one in scenarios],
    }
