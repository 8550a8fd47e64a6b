"""What pairs of runs say of the factor between two trainings, where runs of one training differ from each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Prior:
    """What is known before the first run of how much runs of one training differ: a log-normal distribution.

    Attributes:
        typical: median of the relative standard deviation between runs.
        spread: standard deviation of its logarithm.
    """

    typical: float
    spread: float


# Fitted to recorded trainings by benchmarks/statistics/run.py: docs/measurements/statistics.md.
RECORDED = Prior(typical=0.02, spread=1.0)
GRID = np.geomspace(5e-4, 1.5, 81)
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


def estimate(logs: Sequence[float], variances: Sequence[float], prior: Prior = RECORDED) -> Estimate:
    """The factor's logarithm, from one or more pairs of runs.

    The model is the random-effects model of meta-analysis: the logarithm of pair k's ratio is normal about the true one
    with variance ``variances[k]`` (of the steps within its two runs) + 2 tau² (between runs). tau has a prior that was
    learnt from recorded trainings; it is integrated over numerically, so that the answer is exact for any number of
    pairs, one included. Sources: DerSimonian and Laird, Meta-analysis in clinical trials (1986); Turner et al.,
    Predictive distributions for between-study heterogeneity (2015), for a prior that is learnt; Röver, Bayesian
    random-effects meta-analysis using the bayesmeta R package (2020), for the integral.

    Args:
        logs: logarithm of each pair's ratio.
        variances: of each of them, from the variation of steps within the runs.
        prior: of tau.

    Raises:
        ValueError: there is no pair, or a value is not a finite number.
    """
    values, within = np.asarray(logs, dtype=float), np.asarray(variances, dtype=float)
    if not len(values) or len(values) != len(within):
        raise ValueError(f"a factor needs a pair of runs, each with its variance; got {len(values)} and {len(within)}")
    if not (np.isfinite(values).all() and np.isfinite(within).all()):
        raise ValueError("the ratio of a pair is not a finite number")
    weights = 1.0 / (within + 2.0 * GRID[:, None] ** 2)  # rows: tau; columns: pairs
    precision = weights.sum(1)
    means = weights @ values / precision
    likelihood = likelihoods(values, weights, means)
    plausible = likelihood - 0.5 * (np.log(GRID / prior.typical) / prior.spread) ** 2
    plausible = np.exp(plausible - plausible.max())
    plausible /= plausible.sum()
    errors = 1.0 / np.sqrt(precision)
    low, high = (_quantile(level, plausible, means, errors) for level in _LEVELS)
    between = float(GRID[np.searchsorted(np.cumsum(plausible), 0.5)])
    return Estimate(float(plausible @ means), low, high, between)


def likelihoods(
    values: NDArray[np.float64], weights: NDArray[np.float64], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Logarithm of the likelihood of each tau, the true factor integrated out."""
    far = (weights * (values - means[:, None]) ** 2).sum(1)
    found: NDArray[np.float64] = 0.5 * (np.log(weights).sum(1) - np.log(weights.sum(1)) - far)
    return found


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
