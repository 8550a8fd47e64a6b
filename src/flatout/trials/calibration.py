"""Accuracy of the predictions: each trial's prediction and measurement, over all fixes of a folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flatout.compare.ratio import Ratio
from flatout.results import Gain
from flatout.trials.journal import NAME, read_lines
from flatout.trials.result import Trial

# Ends of a measured interval further apart than this factor say nothing of a prediction.
_UNDECIDED = 2.0


@dataclass(frozen=True)
class Scored:
    """One prediction and its measurement.

    Attributes:
        remedy: id.
        title: with its value.
        command: the training's, in one line.
        predicted: factor on samples/s with its interval.
        measured: the same.
    """

    remedy: str
    title: str
    command: str
    predicted: Gain
    measured: Ratio

    @property
    def decided(self) -> bool:
        """False where the measurement is too uncertain to judge a prediction by."""
        return self.measured.high <= _UNDECIDED * self.measured.low

    @property
    def error(self) -> float:
        """|predicted / measured - 1|, of the factors."""
        return abs(self.predicted.predicted / self.measured.factor - 1.0)

    @property
    def inside(self) -> bool:
        """True if the measured factor lies in the predicted interval."""
        return self.predicted.low <= self.measured.factor <= self.predicted.high


@dataclass(frozen=True)
class Score:
    """Accuracy of several predictions.

    Attributes:
        count: how many.
        median_error: of ``Scored.error``.
        p90_error: of the same.
        coverage: share of measurements that lie in the predicted intervals.
        bias: geometric mean of predicted / measured: above 1, predictions were too high.
    """

    count: int
    median_error: float
    p90_error: float
    coverage: float
    bias: float


def read_scored(fixes: Path) -> list[Scored]:
    """All trials with a measured factor below a folder of fixes, oldest first."""
    found = []
    for path in sorted(fixes.glob(f"*/{NAME}")):
        lines = read_lines(path)
        command = " ".join(next((line["command"] for line in lines if line["kind"] == "begin"), ()))
        for line in lines:
            if line["kind"] != "trial":
                continue
            trial = Trial.from_dict(line["trial"])
            if trial.ratio is not None:
                found.append(Scored(trial.remedy, trial.title, command, trial.predicted, trial.ratio))
    return found


def score(scored: Sequence[Scored]) -> Score | None:
    """Summarise the predictions whose measurements are decided; None: there are none."""
    scored = [one for one in scored if one.decided]
    if not scored:
        return None
    errors = np.array([one.error for one in scored])
    biases = [math.log(one.predicted.predicted / one.measured.factor) for one in scored]
    return Score(
        len(scored),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        sum(one.inside for one in scored) / len(scored),
        math.exp(sum(biases) / len(biases)),
    )
