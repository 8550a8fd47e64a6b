"""Loss check: compares the losses of a trial with those of runs without the remedy. Too few losses fail the check."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.probe.contract import LOSS_METRIC
from flatout.record import Run
from flatout.remedies.proposal import DATA, IDENTICAL, NUMERICS, OPTIMISATION

_ROUNDED = 1e-3  # of the mean loss: a difference that adding in another order makes
LEAST_LOSSES = 10  # fewer are no evidence
# Allowed difference of the later half's mean, in addition to that between two runs without the remedy.
ALLOWED = {IDENTICAL: 0.05, NUMERICS: 0.05, DATA: 0.10, OPTIMISATION: 0.25}


@dataclass(frozen=True)
class LossCheck:
    """A verdict on losses.

    Attributes:
        passed: True if the remedy may be kept.
        text: the statement to show.
        same_bits: every loss equal, bit for bit.
        checked: enough losses were seen to compare them.
    """

    passed: bool
    text: str
    same_bits: bool = False
    checked: bool = True


def losses_of(run: Run) -> list[float]:
    """The losses of a run's backward passes, in order, from the process that recorded most."""
    found = ([value for name, value in process.metrics() if name == LOSS_METRIC] for process in run.processes)
    return max(found, key=len, default=[])


def check(
    without: Sequence[Sequence[float]], with_it: Sequence[Sequence[float]], semantic_class: str, exact: bool = False
) -> LossCheck:
    """Compare.

    Args:
        without: losses of each run without the remedy.
        with_it: of each run with it, in the same order: two runs of a pair begin with the same seed.
        semantic_class: of the remedy: how much may differ.
        exact: nothing may differ where runs without the remedy repeat themselves.
    """
    if min((len(run) for run in (*without, *with_it)), default=0) < LEAST_LOSSES:
        counts = [len(run) for run in (*without, *with_it)]
        seen = f"{min(counts, default=0)} losses were seen in a run, {LEAST_LOSSES} are needed"
        return LossCheck(False, f"not checked: {seen}", checked=False)
    for run in with_it:
        bad = next((number for number, loss in enumerate(run) if not math.isfinite(loss)), None)
        if bad is not None and all(math.isfinite(loss) for other in without for loss in other[: bad + 1]):
            return LossCheck(False, f"the loss of step {bad + 1} is {run[bad]}, without the remedy it is finite")
    count = min(len(run) for run in (*without, *with_it))
    runs = [tuple(run[:count]) for run in (*without, *with_it)]
    a, b = runs[: len(without)], runs[len(without) :]
    unlike = [(one, other) for one, other in zip(a, b, strict=True) if one != other]
    if not unlike:
        text = f"the same {count} losses, bit for bit"
        return LossCheck(True, text if len(set(a)) == 1 else f"{text}, in each pair of runs", same_bits=True)
    repeated = [pair for pair in unlike if a.count(pair[0]) > 1]
    if exact and repeated:
        first = next(n for n in range(count) if any(one[n] != other[n] for one, other in repeated))
        return LossCheck(False, f"runs without the remedy repeat themselves, with it loss {first + 1} is another one")
    return _compare_levels(a, b, semantic_class)


def _compare_levels(
    without: Sequence[Sequence[float]], with_it: Sequence[Sequence[float]], semantic_class: str
) -> LossCheck:
    """Means of the later halves; the difference among runs without the remedy is allowed in addition."""
    count = len(without[0])
    levels_a = [_level(run) for run in without]
    levels_b = [_level(run) for run in with_it]
    a, b = statistics.mean(levels_a), statistics.mean(levels_b)
    spread = max(levels_a) - min(levels_a)
    noise = 2 * max(_noise(run) for run in (*without, *with_it))
    scale = max(abs(a), 1e-12)
    allowed = ALLOWED[semantic_class] * scale + spread + noise
    text = f"mean loss of steps {count // 2 + 1}-{count}: {a:.4g} -> {b:.4g} ({(b - a) / scale:+.1%})"
    if semantic_class == IDENTICAL and len(set(map(tuple, without))) < len(without):
        # Runs repeat bit for bit without the remedy but not with it: at best, another random order.
        cause = "rounding" if abs(b - a) < _ROUNDED * scale else "rounding that grows, or other random numbers"
        text += f"; runs without it repeat to the bit, with it losses differ as by {cause}"
    elif semantic_class == IDENTICAL and len(without) > 1:
        text += f"; runs without it differ from each other by up to {spread / scale:.1%}"
    if semantic_class in (OPTIMISATION, DATA) and b < a:
        return LossCheck(True, text)
    if abs(b - a) <= allowed:
        if abs(b - a) > ALLOWED[semantic_class] * scale:
            text += (
                f", within the {allowed / scale:.0%} allowed here: runs without the remedy differ by "
                f"{spread / scale:.1%}, and means of single losses by {noise / scale:.1%}"
            )
        return LossCheck(True, text)
    return LossCheck(False, f"{text}, more than the {allowed / scale:.1%} that chance and the class allow")


def _level(run: Sequence[float]) -> float:
    return statistics.mean(run[len(run) // 2 :])


def _noise(run: Sequence[float]) -> float:
    """Standard error of the later half's mean."""
    half = run[len(run) // 2 :]
    return statistics.stdev(half) / math.sqrt(len(half)) if len(half) > 1 else 0.0
