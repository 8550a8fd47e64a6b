"""The end of a run's warm-up: found in the steps' durations, not assumed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUP = 5


def warm_up(durations_s: NDArray[np.float64]) -> int:
    """Steps to leave out at the start, at most half of them.

    The cut that makes the standard error of the mean of the rest smallest, over means of five steps (MSER-5).
    Source: White, An effective truncation heuristic for bias reduction in simulation output (1997).
    """
    count = len(durations_s) // GROUP
    if count < 4:
        return 0
    means = durations_s[: count * GROUP].reshape(count, GROUP).mean(1)
    errors = [float(means[cut:].var() / (count - cut)) for cut in range(count // 2 + 1)]
    return GROUP * int(np.argmin(errors))
