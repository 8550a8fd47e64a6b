"""A plan: what was measured, what was asked for, and what of it ends in time."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.plans.costs import Costs
from flatout.plans.drawing import DRAWS, RECORDED, Unmeasured, draw
from flatout.plans.gains import Gain
from flatout.plans.milestones import Milestone, milestones, reached
from flatout.plans.other_gpu import OtherGpu
from flatout.plans.prices import Price
from flatout.plans.scenarios import Limits, Scenario, Work, compare

HOPELESS = 0.05  # probability of an end in time below which a plan counts as failed


@dataclass(frozen=True)
class Plan:
    """The content of ``flatout plan``.

    Attributes:
        source: what was measured.
        costs: its parts.
        asked: the work that was asked for.
        limits: deadline, reserve and price.
        price: None: not given.
        scenarios: what was asked for, then less of it.
        gain: proved; None: not asked for.
        after: the scenarios with that gain.
        other: another GPU; None: not asked for.
        there: the scenarios on it.
        watched: the amount of work that ``milestones`` are of; None: nothing fits.
        milestones: by when how much of it must be done.
        failure: of the recorded command, as a clause; None: it did not fail.
        reached: fold, and whole epochs of it, that what was asked for is expected to reach in its time.
    """

    source: str
    costs: Costs
    asked: Work
    limits: Limits
    price: Price | None
    scenarios: tuple[Scenario, ...]
    gain: Gain | None
    after: tuple[Scenario, ...]
    other: OtherGpu | None
    there: tuple[Scenario, ...]
    watched: Work | None
    milestones: tuple[Milestone, ...]
    reached: tuple[int, int]
    failure: str | None = None

    @property
    def asked_for(self) -> Scenario:
        """What was asked for."""
        return self.scenarios[0]

    @property
    def fits(self) -> Scenario | None:
        """The most work that ends in time; None: nothing does."""
        return next((one for one in self.scenarios if one.work == self.watched), None)


def make_plan(
    source: str,
    costs: Costs,
    asked: Work,
    limits: Limits,
    *,
    price: Price | None = None,
    gain: Gain | None = None,
    other: OtherGpu | None = None,
    failure: str | None = None,
    unmeasured: Unmeasured = RECORDED,
) -> Plan:
    """Project the ends of what was asked for, and of less."""
    draws = draw(costs, unmeasured)
    scenarios = compare(draws, asked, limits)
    after = compare(draws.faster(gain.draw(DRAWS)), asked, limits) if gain else ()
    there = compare(draws.faster(other.gain.draw(DRAWS)), asked, limits) if other else ()
    watched = next((one.work for one in scenarios if one.in_time >= 1 - HOPELESS), None)
    return Plan(
        source=source,
        costs=costs,
        asked=asked,
        limits=limits,
        price=price,
        scenarios=scenarios,
        gain=gain,
        after=after,
        other=other,
        there=there,
        watched=watched,
        milestones=milestones(draws, watched, limits) if watched else (),
        reached=reached(draws, asked, limits),
        failure=failure,
    )
