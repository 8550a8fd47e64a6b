"""Live trials: settings switched in blocks of steps within one running training, instead of a start for each run.

A live trial screens: it can drop a remedy, or propose it for the proof, which always compares runs in processes of
their own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flatout.compare.ratio import Ratio, ratio_of_rates
from flatout.measure.training import find_training
from flatout.probe import events
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR, SETTINGS
from flatout.record import Run
from flatout.units import counted, duration

PAIRS = 5  # of blocks, with and without
LEAST_PAIRS = 3  # an interval of two blocks each says little
LEAST_BLOCK_S = 1.5
LEAST_BATCHES = 12  # of a block
TURNS = 3  # batches that all workers together deliver in one go: so many of these are in a block
LONGEST_PASS = 4  # blocks: where settings change between passes, a longer pass is not waited for


@dataclass(frozen=True)
class Plan:
    """What the probe reads.

    Attributes:
        variants: settings by name, on top of those of the start; the first has none.
        order: the variant of each block.
        block_s: least time that counts of a block.
        least_batches: least batches of it.
        depths: of each variant: batches that its workers have in flight together.
        pass_s: longest pass that is waited for where settings can only change between passes.
    """

    variants: tuple[Mapping[str, Any], ...]
    order: tuple[int, ...]
    block_s: float
    least_batches: int
    pass_s: float
    depths: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """For the run folder."""
        return asdict(self)

    @property
    def needed_s(self) -> float:
        """About how long its blocks take, with as much again for the switches."""
        return (2 * len(self.order) + 1) * self.block_s


@dataclass(frozen=True)
class Finding:
    """What a live trial found.

    Attributes:
        ratio: with the settings over without; None: not measured.
        because: why not, or in which blocks.
    """

    ratio: Ratio | None
    because: str


def not_live(settings: Mapping[str, Any]) -> str:
    """Why these settings cannot be switched within a running training; empty: they can."""
    fixed = [name for name in settings if not SETTINGS[name].live]
    return f"{', '.join(fixed)} cannot be switched in a running training" if fixed else ""


def plan(settings: Mapping[str, Any], loader: Mapping[str, Any], step_s: float, seed: int) -> Plan:
    """The blocks of a trial, in pairs whose order is drawn.

    Args:
        settings: to try.
        loader: settings of the training's DataLoader at present.
        step_s: of a step.
        seed: of the order.
    """
    depths = tuple(_in_flight(merged) for merged in (loader, {**loader, **settings}))
    workers = max(int(settings.get("num_workers") or 0), int(loader.get("num_workers") or 0), 1)
    batches = max(LEAST_BATCHES, TURNS * workers)
    block_s = max(LEAST_BLOCK_S, batches * step_s)
    firsts = [0, 1] * PAIRS
    drawn = firsts[:PAIRS]
    random.Random(seed).shuffle(drawn)
    order = tuple(variant for first in drawn for variant in (first, 1 - first))
    return Plan(({}, dict(settings)), order, block_s, batches, LONGEST_PASS * block_s, depths)


def found(run: Run, plan: Plan) -> Finding:
    """The ratio that the blocks of a recorded run give.

    Args:
        run: the record.
        plan: that the probe followed.
    """
    training = find_training(run)
    if training is None:
        return Finding(None, "no training was found in it")
    told = training.process.info.get("live") or {}
    if told.get("failed"):
        return Finding(None, str(told["failed"]))
    rates = _rates(training.process.of_kinds(events.LIVE_BLOCK), plan)
    pairs = []
    for place in range(0, len(plan.order) - 1, 2):
        if place in rates and place + 1 in rates:
            first, second = rates[place], rates[place + 1]
            pairs.append((first, second) if plan.order[place] == 0 else (second, first))
    if len(pairs) < LEAST_PAIRS:
        return Finding(None, _too_few(run, plan, rates))
    kind = "passes, whole" if told.get("passes") else "steps, starts of passes and validations left out"
    return Finding(ratio_of_rates(pairs), f"in {counted(len(pairs), 'pair')} of blocks of one process ({kind})")


def _too_few(run: Run, plan: Plan, rates: Mapping[int, float]) -> str:
    needed = f"{len(rates)} of {len(plan.order)} blocks were complete"
    size = f"a block takes {duration(plan.block_s)} or more"
    if run.info.get("stop") == "finished":
        return f"the training ended when {needed}; {size}"
    if not rates:
        return f"no block was complete: no batch of a DataLoader led to a backward pass, or it took too long; {size}"
    return f"{needed} in time; {size}"


def _in_flight(loader: Mapping[str, Any]) -> int:
    return int(loader.get("num_workers") or 0) * int(loader.get("prefetch_factor") or DEFAULT_PREFETCH_FACTOR)


def _rates(blocks: Any, plan: Plan) -> dict[int, float]:
    """Samples a second (batches, where samples are unknown) of each complete block, by its number."""
    made: dict[int, list[float]] = {}
    samples_known = bool(len(blocks)) and bool((blocks["a"] > 0).all())
    for number, samples, bits, ns in zip(
        *(blocks[name].tolist() for name in ("arg", "a", "b", "duration")), strict=True
    ):
        batches, before, after = bits & 0xFFFFFFFF, bits >> 32 & 0x7FFF, bits >> 47 & 0x7FFF
        amount = float(samples if samples_known else batches)
        if number < len(plan.order) and 2 * after < plan.depths[plan.order[number]]:
            # Workers are the slower side: what they made counts, not what was taken out of their queue.
            amount *= max(batches + after - before, 1) / batches
        total = made.setdefault(number, [0.0, 0.0])
        total[0] += amount
        total[1] += ns / 1e9
    return {number: amount / seconds for number, (amount, seconds) in made.items() if seconds >= plan.block_s}
