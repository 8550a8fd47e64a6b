"""What pairs of runs say of the factor between two trainings, where runs of one training differ from each other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Prior:
    """What is known beforehand of how much runs of one training differ.

    The logarithm of their relative standard deviation has Student's t distribution with 5 degrees of freedom, as in
    Rhodes, Turner and Higgins, Predictive distributions were developed for the extent of heterogeneity (2015): its
    tails let a few pairs overrule it. Its median follows the variation within the runs, since what disturbs
    steps disturbs whole runs too.

    Attributes:
        typical: median of the standard deviation between runs whose rates have an error of 1% from their steps.
        follows: power of that error with which it grows; 0: it does not, 1: in proportion.
        spread: scale of its logarithm.
    """

    typical: float
    follows: float
    spread: float

    def median(self, error: float) -> float:
        """Of the relative standard deviation between runs.

        Args:
            error: relative standard error of the rate of a typical run, from its steps.
        """
        times = min(max(error, _LEAST_ERROR), _MOST_ERROR) / 0.01
        return self.typical * math.pow(times, self.follows)

    def log_densities(self, error: float) -> NDArray[np.float64]:
        """Of each value of GRID, but for a constant; ``error`` as in ``median``."""
        far = np.log(GRID / self.median(error)) / self.spread
        found: NDArray[np.float64] = -0.5 * (_FREEDOM + 1) * np.log1p(far**2 / _FREEDOM)
        return found


_FREEDOM = 5
# Two runs of a training differ by 1% or more also where its steps do not vary (NOISE_SHARE); most: as recorded.
_LEAST_ERROR, _MOST_ERROR = 0.01, 0.3
# Fitted to recorded trainings by benchmarks/statistics/run.py: docs/measurements/statistics.md.
RECORDED = Prior(typical=0.0167, follows=1.0, spread=0.7)
GRID = np.geomspace(1e-3, 1.5, 49)
_LEVELS = (0.05, 0.95)
_BISECTIONS = 40
_NEGLIGIBLE = 1e-5


@dataclass(frozen=True)
class Estimate:
    """Distribution of the logarithm of a factor, summarised.

    Attributes:
        mean: of it.
        low: 5% quantile.
        high: 95% quantile.
        between: median of the relative standard deviation between runs.
    """

    mean: float
    low: float
    high: float
    between: float


def estimate(logs: Sequence[float], errors: Sequence[tuple[float, float]], prior: Prior = RECORDED) -> Estimate:
    """The factor's logarithm, from one or more pairs of runs.

    The model is the random-effects model of meta-analysis: the logarithm of pair k's ratio is normal about the true one
    with a variance from the steps within its two runs + 2 tau² (between runs). tau has a prior that was learnt from
    recorded trainings; it is integrated over numerically, so that the answer is exact for any number of
    pairs, one included. Sources: DerSimonian and Laird, Meta-analysis in clinical trials (1986); Turner et al.,
    Predictive distributions for between-study heterogeneity (2015), for a prior that is learnt; Röver, Bayesian
    random-effects meta-analysis using the bayesmeta R package (2020), for the integral.

    Args:
        logs: logarithm of each pair's ratio.
        errors: relative standard errors of the rates of each pair's two runs, from the variation of their steps.
        prior: of tau.

    Raises:
        ValueError: there is no pair, or a value is not a finite number.
    """
    values, steps = np.asarray(logs, dtype=float), np.asarray(errors, dtype=float).reshape(-1, 2)
    if not len(values) or len(values) != len(steps):
        raise ValueError(f"a factor needs a pair of runs, each with its errors; got {len(values)} and {len(steps)}")
    if not (np.isfinite(values).all() and np.isfinite(steps).all()):
        raise ValueError("the ratio of a pair is not a finite number")
    within = (steps**2).sum(1)
    typical = statistics.median_low(steps.ravel().tolist())  # of two runs, one may have stalled
    weights = 1.0 / (within + 2.0 * GRID[:, None] ** 2)  # rows: tau; columns: pairs
    precision = weights.sum(1)
    means = weights @ values / precision
    far = (weights * (values - means[:, None]) ** 2).sum(1)
    # Logarithm of the likelihood of each tau, with the true factor integrated out.
    likelihood = 0.5 * (np.log(weights).sum(1) - np.log(precision) - far)
    plausible = likelihood + prior.log_densities(typical)
    plausible = np.exp(plausible - plausible.max())
    plausible /= plausible.sum()
    deviations = 1.0 / np.sqrt(precision)
    low, high = (_quantile(level, plausible, means, deviations) for level in _LEVELS)
    between = float(GRID[np.searchsorted(np.cumsum(plausible), 0.5)])
    return Estimate(float(plausible @ means), low, high, between)


def _quantile(
    level: float, shares: NDArray[np.float64], means: NDArray[np.float64], errors: NDArray[np.float64]
) -> float:
    """Of a mixture of normal distributions, by bisection."""
    matter = shares > _NEGLIGIBLE
    shares, means, errors = shares[matter] / shares[matter].sum(), means[matter], errors[matter]
    low, high = float((means - 8 * errors).min()), float((means + 8 * errors).max())
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        below = sum(
            share * 0.5 * math.erfc((mean - middle) / (error * math.sqrt(2.0)))
            for share, mean, error in zip(shares, means, errors, strict=True)
        )
        low, high = (middle, high) if below < level else (low, middle)
    return 0.5 * (low + high)
