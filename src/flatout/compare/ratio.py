"""The factor between two speeds, with its interval, from pairs of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.compare.between_runs import estimate
from flatout.compare.crowding import uneven_log
from flatout.compare.speed import Speed
from flatout.measure.thresholds import NOISE_SHARE
from flatout.units import factor, percent

# 5% of a normal distribution lie beyond this many standard deviations, on either side.
_NORMAL95 = 1.645
# Other processes that alone may have made a larger factor than this: the pairs compare the machine, not the training.
_DISTORTING = 1.5


@dataclass(frozen=True)
class Ratio:
    """Speed of B over that of A, with a 90% interval.

    Attributes:
        factor: 1.0 is no difference; above it B is faster.
        low: lower end.
        high: upper end.
        pairs: pairs of runs that were measured; 1: how much runs differ from each other is taken from other trainings.
        between: relative standard deviation between runs of one training, as these pairs and other trainings show it;
            None: not estimated.
        uneven: factor that other processes alone can have made by leaving the runs of B more cores, or fewer; the
            interval is as much wider, on that side.
    """

    factor: float
    low: float
    high: float
    pairs: int
    between: float | None = None
    uneven: float = 1.0

    @property
    def log_error(self) -> float:
        """Standard error of the factor's logarithm."""
        return math.log(self.high / self.low) / (2 * _NORMAL95)

    @property
    def resolved(self) -> bool:
        """True if the whole interval lies on one side of 1."""
        return self.low > 1.0 or self.high < 1.0

    @property
    def differing(self) -> str:
        """What is said of runs that differ by more than usual; empty: they do not."""
        if self.between is None or self.between <= NOISE_SHARE:
            return ""
        return f"Runs of one training differ by about {percent(self.between)} here"

    @property
    def disturbed(self) -> str:
        """What is said where other processes alone may have made a material difference; empty: they have not."""
        if abs(math.log(self.uneven)) <= NOISE_SHARE:
            return ""
        return f"other processes left the two unequal cores, which alone may account for {factor(self.uneven)}"

    @property
    def distorted(self) -> bool:
        """True if other processes alone may have made so large a factor that these pairs prove nothing."""
        return abs(math.log(self.uneven)) > math.log(_DISTORTING)

    def slower_than(self, share: float) -> bool:
        """True if, over the whole interval, B has lost more than ``share`` of the speed of A."""
        return self.high < 1.0 - share


def ratio_of(a: Sequence[Speed], b: Sequence[Speed]) -> Ratio:
    """From runs of A and of B, taken in turn: the first of each are a pair, and so on.

    The steps within the runs and the difference between runs both count: see ``between_runs.estimate``.

    Raises:
        ValueError: there is no pair.
    """
    pairs = list(zip(a, b, strict=False))
    logs = [math.log(one.rate / other.rate) for other, one in pairs]
    found = estimate(logs, [(first.error, second.error) for first, second in pairs])
    uneven = uneven_log(pairs)
    low, high = math.exp(found.low - max(uneven, 0.0)), math.exp(found.high - min(uneven, 0.0))
    return Ratio(math.exp(found.mean), low, high, len(pairs), found.between, math.exp(uneven))


def ratio_of_rates(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """From rates of A and of B that were measured in turn in one process: only their pairs show how much they differ.

    Raises:
        ValueError: there is no pair, or a rate is not above 0.
    """
    if any(min(pair) <= 0 for pair in pairs):
        raise ValueError("a rate is not above 0")
    found = estimate([math.log(b / a) for a, b in pairs], [(0.0, 0.0)] * len(pairs))
    return Ratio(math.exp(found.mean), math.exp(found.low), math.exp(found.high), len(pairs))
