"""Live trials: settings switched in blocks of steps within one running training, instead of a start for each run.

A live trial screens: it can drop a remedy, or propose it for the proof, which always compares runs in processes of
their own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flatout.compare.ratio import Ratio, ratio_of_rates
from flatout.measure.thresholds import NOISE_SHARE
from flatout.measure.training import find_training
from flatout.probe import events
from flatout.probe.live.blocks import LEAST_PAIRS, amount
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR, SETTINGS
from flatout.record import Run
from flatout.units import counted, duration

PAIRS = 5  # of blocks, with and without, at most
USUAL_PAIRS = 3  # that decide, where a gain is clear or there is none
LEAST_BLOCK_S = 1.5
LEAST_BATCHES, MOST_BATCHES = 4, 12  # of a block: the more, the more steps vary
_BLOCK_ERROR = 0.04  # wanted relative error of a block's rate
TURNS = 3  # batches that all workers together deliver in one go: so many of these are in a block
LONGEST_PASS = 4  # blocks: where settings change between passes, a longer pass is not waited for


@dataclass(frozen=True)
class Plan:
    """What the probe reads.

    Attributes:
        candidates: settings by name of each remedy, in the order in which they are tried.
        order: 0 and 1 for the blocks of a candidate, without and with it.
        loader: settings of the training's DataLoader at the start.
        block_s: least time that counts of a block.
        least_batches: least batches of it,
        turns: and least batches of it for each worker.
        look_s: a pass that is shorter counts whole, and settings change between passes.
        pass_s: longest pass that is waited for where settings can only change between passes.
        threshold: relative gain that counts.
        needed_s: about how long the blocks take, if each candidate takes the usual number of pairs.
    """

    candidates: tuple[Mapping[str, Any], ...]
    order: tuple[int, ...]
    loader: Mapping[str, Any]
    block_s: float
    least_batches: int
    turns: int
    look_s: float
    pass_s: float
    threshold: float
    needed_s: float

    def to_dict(self) -> dict[str, Any]:
        """For the run folder."""
        return asdict(self)


@dataclass(frozen=True)
class Finding:
    """What a live trial found of one candidate.

    Attributes:
        ratio: with the settings over without; None: not measured.
        because: why not, or in which blocks.
    """

    ratio: Ratio | None
    because: str


def not_live(settings: Mapping[str, Any]) -> str:
    """Why these settings cannot be switched within a running training; empty: they can."""
    fixed = [name for name in settings if not SETTINGS[name].live]
    if settings.get("autocast") == "fp16":
        fixed.append("autocast=fp16, which scales gradients,")
    return f"{', '.join(fixed)} cannot be switched in a running training" if fixed else ""


def plan(
    candidates: Sequence[Mapping[str, Any]], loader: Mapping[str, Any], step_s: float, seed: int, spread: float = 1.0
) -> Plan:
    """The blocks of a trial, in pairs whose order is drawn.

    Args:
        candidates: settings to try, one after the other; one that gains stays for those after it.
        loader: settings of the training's DataLoader at present.
        step_s: of a step.
        seed: of the order.
        spread: relative standard deviation of the steps' times.
    """
    batches = min(max(math.ceil((spread / _BLOCK_ERROR) ** 2), LEAST_BATCHES), MOST_BATCHES)
    firsts = [0, 1] * PAIRS
    drawn = firsts[:PAIRS]
    random.Random(seed).shuffle(drawn)
    order = tuple(variant for first in drawn for variant in (first, 1 - first))
    longest = max(batches, TURNS * max(_workers({**loader, **settings}) for settings in (*candidates, {})))
    look_s = max(LEAST_BLOCK_S, longest * step_s)
    without_s = _block_s(batches, _workers(loader), step_s)
    pairs_s = 0.0
    for settings in candidates:
        workers = _workers({**loader, **settings})
        # More workers are proposed where the time of a step is theirs.
        faster_s = step_s * min(max(_workers(loader), 1) / max(workers, 1), 1.0)
        pairs_s += USUAL_PAIRS * (without_s + _block_s(batches, workers, faster_s))
    return Plan(
        candidates=tuple(dict(settings) for settings in candidates),
        order=order,
        loader=dict(loader),
        block_s=LEAST_BLOCK_S,
        least_batches=batches,
        turns=TURNS,
        look_s=look_s,
        pass_s=LONGEST_PASS * look_s,
        threshold=NOISE_SHARE,
        needed_s=look_s + pairs_s,
    )


def _block_s(batches: int, workers: int, step_s: float) -> float:
    """About how long a block takes, with the batches before it that fill the queue."""
    return max(max(batches, TURNS * workers) * step_s, LEAST_BLOCK_S) + (workers + 1) * step_s


def found(run: Run, plan: Plan) -> list[Finding]:
    """The ratios that the blocks of a recorded run give, of each candidate.

    Args:
        run: the record.
        plan: that the probe followed.
    """
    training = find_training(run)
    if training is None:
        return [Finding(None, "no training was found in it")] * len(plan.candidates)
    told = training.process.info.get("live") or {}
    gained, refused = told.get("gained") or (), told.get("refused") or {}
    blocks = training.process.of_kinds(events.LIVE_BLOCK)
    kind = "passes, whole" if told.get("passes") else "steps, starts of passes and validations left out"
    findings = []
    for number, settings in enumerate(plan.candidates):
        base = {**plan.loader, **_merged(plan, [one for one in gained if one < number])}
        begin = number * len(plan.order)
        own = blocks[(blocks["arg"] >= begin) & (blocks["arg"] < begin + len(plan.order))]
        pairs = _pairs(own, begin, plan, (_in_flight(base), _in_flight({**base, **settings})))
        if str(number) in refused:
            findings.append(Finding(None, str(refused[str(number)])))
        elif len(pairs) < LEAST_PAIRS:
            findings.append(
                Finding(None, str(told.get("failed") or _too_few(run, plan, len(pairs), bool(len(blocks)))))
            )
        else:
            because = f"in {counted(len(pairs), 'pair')} of blocks of one process ({kind})"
            findings.append(Finding(ratio_of_rates(pairs), because))
    return findings


def _merged(plan: Plan, numbers: Sequence[int]) -> dict[str, Any]:
    return {name: value for number in numbers for name, value in plan.candidates[number].items()}


def _too_few(run: Run, plan: Plan, pairs: int, any_block: bool) -> str:
    size = f"a block takes {duration(plan.block_s)} and {plan.least_batches} batches or more"
    needed = f"{pairs} of {LEAST_PAIRS} pairs of blocks were complete"
    if run.info.get("stop") == "finished":
        return f"the training ended when {needed}; {size}"
    if not any_block:
        return f"no block was complete: no batch of a DataLoader led to a backward pass, or it took too long; {size}"
    return f"{needed} in time; {size}"


def _workers(loader: Mapping[str, Any]) -> int:
    return int(loader.get("num_workers") or 0)


def _in_flight(loader: Mapping[str, Any]) -> int:
    return _workers(loader) * int(loader.get("prefetch_factor") or DEFAULT_PREFETCH_FACTOR)


def _pairs(blocks: Any, begin: int, plan: Plan, depths: tuple[int, int]) -> list[tuple[float, float]]:
    """Rates without and with a candidate, of its complete pairs of blocks.

    Args:
        blocks: its events.
        begin: number of its first block.
        plan: of the trial.
        depths: batches in flight, without and with it.
    """
    rates = _rates(blocks, plan.block_s, [depths[variant] for variant in plan.order], begin)
    pairs = []
    for place in range(0, len(plan.order) - 1, 2):
        if place in rates and place + 1 in rates:
            first, second = rates[place], rates[place + 1]
            pairs.append((first, second) if plan.order[place] == 0 else (second, first))
    return pairs


def _rates(blocks: Any, block_s: float, depths: Sequence[int], begin: int = 0) -> dict[int, float]:
    """Samples a second (batches, where samples are unknown) of each complete block, by its place after ``begin``."""
    made: dict[int, list[float]] = {}
    samples_known = bool(len(blocks)) and bool((blocks["a"] > 0).all())
    for number, samples, bits, ns in zip(
        *(blocks[name].tolist() for name in ("arg", "a", "b", "duration")), strict=True
    ):
        batches, before, after = bits & 0xFFFFFFFF, bits >> 32 & 0x7FFF, bits >> 47 & 0x7FFF
        delivered = float(samples if samples_known else batches)
        total = made.setdefault(number - begin, [0.0, 0.0])
        total[0] += amount(delivered, batches, before, after, depths[number - begin])
        total[1] += ns / 1e9
    return {place: done / seconds for place, (done, seconds) in made.items() if seconds >= block_s}
