"""A few samples that cost much more than the others: which, and how much of the time of all samples that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SLOW = 5.0  # times the median sample
_FEW = 0.15  # of the samples; more are not the exception
_LEAST_SAMPLES = 20
_CONTENDED = 0.1  # of the fetches, waiting for a core
_SLICE_S = 0.024  # the longest turn of another thread on a core, under Linux's usual settings
_LEAST_SLOW = 3  # one or two are the first of a worker, which opens and imports


@dataclass(frozen=True)
class SlowSamples:
    """The slow ones.

    Attributes:
        samples: share of the samples.
        excess: share of the time of all samples that these take beyond a median one.
        median_s: of all samples.
        mean_s: of the slow ones.
        indices: in the data set, slowest first; empty if samples have no index.
    """

    samples: float
    excess: float
    median_s: float
    mean_s: float
    indices: tuple[int, ...]


def slow_samples(
    seconds: NDArray[np.float64], index: NDArray[np.int64], waited_for_a_core: float = 0.0
) -> SlowSamples | None:
    """The few slow samples, or None if there are none, or too few were timed.

    A sample may take long because its process lost the core. Samples that were timed several times count with the
    shortest of them; where all were timed once, that share of all time is taken off the excess, and beside others on
    the cores a sample counts only if it took longer than one of them may have had its core.

    Args:
        seconds: of each timed sample.
        index: of each in the data set; -1: it has none.
        waited_for_a_core: share of the time of the fetches.
    """
    if len(seconds) < _LEAST_SAMPLES:
        return None
    which = np.arange(len(seconds))
    if (index >= 0).all():
        which, first = np.unique(index, return_inverse=True)
        shortest = np.full(len(which), np.inf)
        np.minimum.at(shortest, first, seconds)
        once = len(which) > 0.5 * len(seconds)
    else:
        shortest, once = seconds, True
    if len(shortest) < _LEAST_SAMPLES:
        return None
    median = float(np.median(shortest))
    slowest = _SLOW * median
    if once and waited_for_a_core > _CONTENDED:
        slowest = max(slowest, _SLICE_S)
    slow = np.flatnonzero(shortest > slowest)
    if len(slow) < _LEAST_SLOW or len(slow) > _FEW * len(shortest) or median <= 0:
        return None
    excess = float((shortest[slow] - median).sum() / shortest.sum()) - (waited_for_a_core if once else 0.0)
    if excess <= 0:
        return None
    ordered = slow[np.argsort(-shortest[slow], kind="stable")]
    return SlowSamples(
        samples=len(slow) / len(shortest),
        excess=excess,
        median_s=median,
        mean_s=float(shortest[slow].mean()),
        indices=tuple(int(which[row]) for row in ordered) if (index >= 0).all() else (),
    )
