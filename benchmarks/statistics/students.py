"""The method before: Student's interval of whole pairs, and its rules of when a trial is decided."""

from __future__ import annotations

import math
import statistics

import numpy as np

from flatout.measure.thresholds import NOISE_SHARE

_T95 = (6.314, 2.920, 2.353, 2.132)
_PROMISING = 1.25
_HOPELESS = 0.95


def outcome(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[str, bool]:
    """("kept", "dropped" or "open", whether it says no more than that no further pair is made).

    Args:
        pairs: seconds of each step of the runs without and with the remedy.
    """
    if len(pairs) == 1:
        (a, b) = pairs[0]
        factor = rate(b) / rate(a)
        if factor < _HOPELESS:
            return "dropped", True
        return ("open" if factor > 1 + NOISE_SHARE else "dropped"), False
    logs = [math.log(rate(b) / rate(a)) for a, b in pairs]
    mean = statistics.mean(logs)
    half = _T95[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high, factor = math.exp(mean - half), math.exp(mean + half), math.exp(mean)
    if low > 1 + NOISE_SHARE:
        return "kept", True
    nothing = factor < 1 + 0.5 * NOISE_SHARE and high < _PROMISING
    return "dropped", high < 1 + NOISE_SHARE or nothing


def rate(steps_s: np.ndarray) -> float:
    """Steps a second."""
    return len(steps_s) / float(steps_s.sum())
