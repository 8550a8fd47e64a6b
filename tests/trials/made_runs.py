"""Runs of trials made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flatout.compare.speed import Speed
from flatout.results import Ledger, Steps
from flatout.trials.outcome import OK, TrialRun

STEPS = 80


def ledger(window_s: float = 8.0) -> Ledger:
    """One without accounts."""
    return Ledger(
        wall_s=window_s + 5,
        startup_s=4.0,
        startup=(),
        window_s=window_s,
        accounts=(),
        unaccounted_s=0.0,
        ending_s=1.0,
        epochs=(),
        steps=Steps(STEPS, STEPS * 8, 0.1, 0.12, 0.08, 0.15, 80.0, 1.0),
    )


def speed(rate: float, steps_s: Sequence[float] | None = None, error: float = 0.006) -> Speed:
    """A run at ``rate`` samples/s, with this relative standard error."""
    steps = np.asarray(steps_s if steps_s is not None else np.full(STEPS, 8 / rate))
    return Speed("run", ("python", "train.py"), rate, "samples/s", error, 8.0, ledger(), steps)


def trial_run(rate: float, losses: Sequence[float] | None = None, steps_s: Sequence[float] | None = None) -> TrialRun:
    """A run that counts."""
    return TrialRun(OK, "", 5.0, speed(rate, steps_s), tuple(losses or [1.0] * 40))
