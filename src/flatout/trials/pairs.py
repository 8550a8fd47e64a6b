"""Pairs of runs with and without a remedy, A B B A, as many as needed for a decision."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flatout.compare.evened import evened
from flatout.compare.in_turn import turn
from flatout.compare.ratio import Ratio, ratio_of
from flatout.compare.speed import Speed
from flatout.probe.settings import SETTINGS
from flatout.trials.budget import OutOfTime
from flatout.trials.losses import LossCheck, check
from flatout.trials.outcome import OK, TrialRun
from flatout.trials.sequential import MOST_PAIRS

# A single pause of this share of a window, with none like it in the other run, is blamed on the machine.
_STALL_SHARE = 0.25
# Where the samples are not known, so many losses within this share of one another show that the batches are the same.
_FIRST_LOSSES, _SAME_LOSS = 5, 0.003
_ROUNDED = 1e-4  # the same, of losses that are equal but for rounding: those of other batches may begin alike, too

Run = Callable[[Mapping[str, Any], int], TrialRun]


@dataclass
class Pairs:
    """The runs of a trial, measured in pairs.

    Attributes:
        a: without the remedy.
        b: with it.
        failed: the run that failed; None: no run did.
        stalled: pairs that were left out.
        failed_without: ``failed`` ran without the remedy.
    """

    a: list[TrialRun] = field(default_factory=list)
    b: list[TrialRun] = field(default_factory=list)
    failed: TrialRun | None = None
    stalled: int = 0
    failed_without: bool = False

    def ratio(self) -> Ratio | None:
        """B over A; None without a complete pair."""
        a, b = self.speeds()
        return ratio_of(a, b) if a and b else None

    def speeds(self) -> tuple[list[Speed], list[Speed]]:
        """Of A's runs and of B's; where losses or calls say that steps have as many samples, they are A's."""
        a, b = ([run.speed for run in runs if run.speed is not None] for runs in (self.a, self.b))
        alike = self.begins_alike(_ROUNDED)
        b = [
            one.with_batches_of(other) if alike or one.has_batches_of(other) else one
            for one, other in zip(b, a, strict=False)
        ] + b[len(a) :]
        return evened(a, b)

    def begins_alike(self, within: float = _SAME_LOSS) -> bool:
        """True if the first losses of the first pair are within this share of one another, as of the same batches."""
        first = [run.losses[:_FIRST_LOSSES] for runs in (self.a, self.b) for run in runs[:1]]
        return (
            all(first)
            and len(first) == 2
            and all(math.isclose(one, other, rel_tol=within) for one, other in zip(*first, strict=False))
        )

    def together(self, other: Pairs) -> Pairs:
        """These pairs and those of another trial of the same settings."""
        return replace(self, a=[*other.a, *self.a], b=[*other.b, *self.b])

    def rates(self) -> tuple[float, float]:
        """Medians of A's and of B's rates; requires a complete pair."""
        before, after = (statistics.median(speed.rate for speed in side) for side in self.speeds())
        return before, after

    def check(self, semantic_class: str, settings: Iterable[str] = ()) -> LossCheck:
        """Compare the losses; ``settings`` are the names of those that differ."""
        exact = any(name in SETTINGS and SETTINGS[name].exact for name in settings)
        return check([run.losses for run in self.a], [run.losses for run in self.b], semantic_class, exact)


def measure_pairs(
    run: Run,
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *,
    room: Callable[[int], bool],
    decided: Callable[[Ratio], bool],
) -> Pairs:
    """Run pairs until the result is decided, a run fails, or there is no time for another pair.

    Args:
        run: makes one run with these settings, from this seed.
        a: settings without the remedy.
        b: settings with it.
        room: returns True if there is time for this many more runs.
        decided: returns True if a ratio needs no further pair.

    Raises:
        OutOfTime: the budget ran out in the first pair.
    """
    pairs = Pairs()
    number = 0
    while number < MOST_PAIRS + pairs.stalled and (number == 0 or room(2)):
        pair = {}
        for name in turn(number):
            try:
                pair[name] = run(a if name == "a" else b, seed_of(number))
            except OutOfTime:
                if not pairs.a:
                    raise
                return pairs  # those that are complete still say something
            if pair[name].outcome != OK:
                pairs.failed, pairs.failed_without = pair[name], name == "a"
                return pairs
        number += 1
        if _stalled(pair["a"], pair["b"]) and not pairs.stalled and room(2):
            pairs.stalled += 1
            continue
        pairs.a.append(pair["a"])
        pairs.b.append(pair["b"])
        ratio = pairs.ratio()
        assert ratio is not None, "a pair was added just now"
        if decided(ratio):
            return pairs
    return pairs


def seed_of(pair: int) -> int:
    """The seed of a pair's runs: two pairs in a row have the same, which shows whether the training repeats itself."""
    return pair // 2


def _stalled(a: TrialRun, b: TrialRun) -> bool:
    """True if one run had a single long stall, and the other did not."""
    return abs(_longest_share(a) - _longest_share(b)) > _STALL_SHARE


def _longest_share(run: TrialRun) -> float:
    """Share of the window taken by the longest step, less the median step."""
    assert run.speed is not None, "only runs that count are compared"
    steps = run.speed.steps_s
    return float((steps.max() - np.median(steps)) / steps.sum()) if len(steps) > 1 else 0.0
