"""The factor between two speeds, with its interval: from one run of each, or from pairs of runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flatout.compare.speed import Speed
from flatout.measure.thresholds import NOISE_SHARE

# 95% points of Student's t by degrees of freedom: both ends together leave 10% outside.
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
_NORMAL95 = 1.645


@dataclass(frozen=True)
class Ratio:
    """Speed of B over that of A, with a 90% interval.

    Attributes:
        factor: 1.0 is no difference; above it B is faster.
        low: lower end.
        high: upper end.
        pairs: pairs of runs that were measured; 1: the interval reflects only the variation of steps within each run.
    """

    factor: float
    low: float
    high: float
    pairs: int

    @property
    def resolved(self) -> bool:
        """True if the whole interval lies on one side of 1."""
        return self.low > 1.0 or self.high < 1.0

    def slower_than(self, share: float) -> bool:
        """True if, over the whole interval, B has lost more than ``share`` of the speed of A."""
        return self.high < 1.0 - share


def of_two(a: Speed, b: Speed) -> Ratio:
    """From one run of each.

    Two runs of one training differ by some per cent for reasons that no single run shows; the interval is widened by
    NOISE_SHARE for that.
    """
    ratios = b.resampled / a.resampled
    low, high = (float(value) for value in np.quantile(ratios, (0.05, 0.95)))
    factor = b.rate / a.rate
    wider = 1.0 + NOISE_SHARE
    return Ratio(factor, min(low, factor) / wider, max(high, factor) * wider, 1)


def of_pairs(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """From pairs of rates (a, b), measured in turn: mean of the logarithms, with Student's interval.

    Raises:
        ValueError: there are fewer than two pairs.
    """
    if len(pairs) < 2:
        raise ValueError(f"an interval needs two pairs or more, got {len(pairs)}")
    logs = [math.log(b / a) for a, b in pairs]
    mean, spread = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    freedom = len(logs) - 1
    half = (_T95[freedom - 1] if freedom <= len(_T95) else _NORMAL95 * (1 + 1 / freedom)) * spread
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(pairs))
