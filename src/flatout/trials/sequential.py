"""When pairs of runs have decided a trial: a gain is certain, ruled out, or beyond what more pairs could show."""

from __future__ import annotations

import math
from statistics import NormalDist

from flatout.compare.ratio import Ratio
from flatout.measure.thresholds import NOISE_SHARE

LEAST_PAIRS = 2  # that keep a remedy: how much these runs differ from each other, one pair does not show
MOST_PAIRS = 4
# With a smaller chance than this that the pairs that may still be made would prove a gain, they are not made.
_FUTILE = 0.10
_MOST_NEEDED = 20  # pairs; more of them are no advice
_NORMAL95 = 1.645
_NORMAL = NormalDist()


def clears(ratio: Ratio, threshold: float = NOISE_SHARE) -> bool:
    """True if the whole interval lies above the threshold."""
    return ratio.low > 1.0 + threshold


def gains(ratio: Ratio, threshold: float = NOISE_SHARE) -> bool:
    """True if the whole interval clears the threshold, with enough pairs to keep a remedy, on cores shared evenly."""
    return ratio.pairs >= LEAST_PAIRS and clears(ratio, threshold) and not ratio.distorted


def hopeless(ratio: Ratio, threshold: float = NOISE_SHARE) -> bool:
    """True if a gain is ruled out, or if further pairs have hardly a chance to prove one."""
    if clears(ratio, threshold):
        return False
    return ratio.high < 1.0 + threshold or chance_of_proof(ratio, MOST_PAIRS, threshold) < _FUTILE


def decided(ratio: Ratio, threshold: float = NOISE_SHARE) -> bool:
    """True if no further pair is needed."""
    return gains(ratio, threshold) or hopeless(ratio, threshold)


def chance_of_proof(ratio: Ratio, pairs: int, threshold: float = NOISE_SHARE) -> float:
    """Probability that the interval clears the threshold once ``pairs`` pairs are measured.

    The predictive probability of Spiegelhalter, Freedman and Blackburn, Monitoring clinical trials: conditional or
    predictive power? (1986), for a normal logarithm whose standard error falls with the root of the pairs.
    """
    if ratio.pairs >= pairs:
        return float(clears(ratio, threshold))
    now = ratio.log_error
    then = now * math.sqrt(ratio.pairs / pairs)
    beyond = math.log(ratio.factor) - math.log(1.0 + threshold) - _NORMAL95 * then
    moves = math.sqrt(now**2 - then**2)
    return _NORMAL.cdf(beyond / moves) if moves > 0 else float(beyond > 0)


def pairs_needed(ratio: Ratio, threshold: float = NOISE_SHARE) -> int | None:
    """Pairs in all after which the interval clears the threshold, if the factor stays; None: too many to tell."""
    beyond = math.log(ratio.factor) - math.log(1.0 + threshold)
    if beyond <= 0:
        return None
    pairs = ratio.pairs * (_NORMAL95 * ratio.log_error / beyond) ** 2
    needed = max(math.ceil(pairs), ratio.pairs + (0 if gains(ratio, threshold) else 1), LEAST_PAIRS)
    return needed if needed <= _MOST_NEEDED else None
