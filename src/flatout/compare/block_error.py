"""The standard error of a run's rate, from the means of blocks of consecutive steps."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from flatout.measure.thresholds import LEAST_STEPS

LEAST_BLOCKS, MOST_BLOCKS = 5, 20
_STEPS_A_BLOCK = 3
# One block after the other tells at most this much of the next; beyond it, the estimate is of a drift.
_MOST_CORRELATION = 0.7


def relative_error(amounts: NDArray[np.float64], seconds: NDArray[np.float64]) -> float:
    """Relative standard error of ``amounts.sum() / seconds.sum()``: 0.02 is 2%.

    The steps are divided into 5 to 20 blocks (batch means: Schmeiser, Batch size effects in the analysis of simulation
    output, 1982; the variance of a ratio: Cochran, Sampling Techniques, 1977, 6.3). What correlation remains between
    one block and the next widens the error by (1 + r) / (1 - r), as for an autoregressive series (Bartlett 1946); 1/m
    corrects the bias of r in m blocks. Few blocks make the error itself uncertain: it is widened to the standard
    deviation of Student's t with m - 1 degrees of freedom. A stalled block counts as it is, so that the rate of its
    run is uncertain and weighs little.

    Args:
        amounts: work of each step, such as its samples.
        seconds: duration of each step.

    Raises:
        ValueError: fewer than LEAST_STEPS steps, or a value that is not a finite number above 0.
    """
    if len(seconds) < LEAST_STEPS:
        raise ValueError(f"{len(seconds)} steps: at least {LEAST_STEPS} are needed for the error of a rate")
    for name, values in (("amount", amounts), ("duration", seconds)):
        if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
            raise ValueError(f"the {name} of a step is {_worst(values)}: it must be a finite number, not below 0")
    blocks = min(max(len(seconds) // _STEPS_A_BLOCK, LEAST_BLOCKS), MOST_BLOCKS)
    work = np.array([block.sum() for block in np.array_split(amounts, blocks)])
    time = np.array([block.sum() for block in np.array_split(seconds, blocks)])
    off = (time - work * (time.sum() / work.sum())) / time.mean()
    variance = float(off @ off) / (blocks - 1) / blocks
    variance *= (blocks - 1) / (blocks - 3)
    if variance == 0.0:
        return 0.0
    following = float(off[:-1] @ off[1:]) / float(off @ off) + 1 / blocks
    correlation = min(max(following, 0.0), _MOST_CORRELATION)
    return math.sqrt(variance * (1 + correlation) / (1 - correlation))


def _worst(values: NDArray[np.float64]) -> float:
    bad = values[~(np.isfinite(values) & (values >= 0))]
    return float(bad[0]) if len(bad) else 0.0
