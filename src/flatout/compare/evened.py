"""Two runs as if validation and checkpoints had come as often in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flatout.compare.block_error import relative_error
from flatout.compare.speed import Speed
from flatout.measure.thresholds import NOISE_SHARE

_SEVERAL = 3  # of them in both runs: one more in one of these says little
_CHANCE = 1.0  # of them, that a run has more or fewer than its part of both: what is more apart than this was changed


def evened(a: Sequence[Speed], b: Sequence[Speed]) -> tuple[list[Speed], list[Speed]]:
    """The runs, those of each pair with as many pauses a sample.

    Args:
        a: the first is in a pair with the first of ``b``, and so on.
        b: see there.
    """
    first, second = list(a), list(b)
    for place, (one, other) in enumerate(zip(a, b, strict=False)):
        for account in sorted({*one.pauses} & {*other.pauses}):
            first[place], second[place] = _evened(first[place], second[place], account)
    return first, second


def _evened(one: Speed, other: Speed, account: str) -> tuple[Speed, Speed]:
    both = one.pauses[account], other.pauses[account]
    uneven = both[0].count != both[1].count or bool(both[0].cut_s or both[1].cut_s)
    shares = [pauses.seconds / run.counted_s for pauses, run in zip(both, (one, other), strict=True)]
    if one.unit != other.unit or not uneven or max(shares) <= NOISE_SHARE:
        return one, other
    counts = [pauses.count for pauses in both]
    amounts = [run.rate * run.counted_s for run in (one, other)]
    amount, count = sum(amounts), sum(counts)
    if min(counts) >= _SEVERAL or abs(counts[0] - count * amounts[0] / amount) > _CHANCE:
        return one, other
    whole = [pauses.whole_s / pauses.count for pauses in both if pauses.count]
    found = []
    for run, pauses in zip((one, other), both, strict=True):
        each_s = pauses.whole_s / pauses.count if pauses.count else whole[0] if whole else 0.0
        found.append(_with(run, account, each_s * count / amount))
    return found[0], found[1]


def _with(run: Speed, account: str, each_s: float) -> Speed:
    """The run with this many seconds of pauses a sample, in place of those that it had."""
    pauses = run.pauses[account]
    amount = run.rate * run.counted_s
    counted_s = run.counted_s - pauses.seconds + each_s * amount
    steps_s = np.maximum(run.steps_s - pauses.in_steps_s, 0.0)
    between_s = max(counted_s - float(steps_s.sum()), 0.0) / len(steps_s)
    return replace(
        run,
        rate=amount / counted_s,
        steps_rate=len(steps_s) / counted_s,
        error=relative_error(np.ones(len(steps_s)) if run.guessed else run.amounts, steps_s + between_s),
        steps_s=steps_s,
        counted_s=counted_s,
        recorded_s=run.recorded_s or 1.0 / run.rate,
        pauses={name: one for name, one in run.pauses.items() if name != account},
        evened={**run.evened, account: each_s},
    )
