"""Bootstrap of what was measured: many trainings that might come, each with its own costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from flatout.measure.timeline import Floats
from flatout.plans.costs import Costs

DRAWS = 4000
FEW_ENDS = 0.2  # relative standard deviation of the time of one epoch's end
# Other work that takes a share of the cores comes and goes: by so much of that share the drift grows. Not fitted.
BUSY = 0.5
LEAVING_S = 2.0  # that a process takes at most after its last work, where that was not seen
SEED = 0  # the same record gives the same plan


@dataclass(frozen=True)
class Unmeasured:
    """What is known beforehand of the part of a training that a recording does not show.

    Attributes:
        drift: standard deviation of the logarithm of (mean step of the whole / mean step of the recording), where the
            recording's parts do not differ.
        follows: how much it grows with the relative standard deviation of the parts.
        between: quantiles of (time beside the steps / time of the steps) of an epoch, for recordings without an end
            of an epoch.
    """

    drift: float
    follows: float
    between: tuple[float, ...]


# Learnt from recorded trainings by benchmarks/plans/run.py: docs/measurements/plans.md.
RECORDED = Unmeasured(
    drift=0.064, follows=0.32, between=(0.00098, 0.0031, 0.0068, 0.012, 0.026, 0.059, 0.19, 0.37, 1.4)
)


@dataclass(frozen=True)
class Draws:
    """Each part of ``Costs``, drawn DRAWS times; one place of all arrays is one training."""

    steps: int
    startup_s: float
    step_s: Floats
    between_s: Floats
    first_extra_s: float
    ending_s: Floats
    fold_start_s: float

    def faster(self, factors: Floats) -> Draws:
        """With steps that take ``1 / factors`` of the time; validation, checkpoints and starts stay as they are."""
        return replace(self, step_s=self.step_s / factors)

    def epoch_s(self, subset: float = 1.0) -> Floats:
        """One epoch that another one follows."""
        return self.steps * subset * self.step_s + self.between_s

    def end_s(self, folds: int, epochs: float, subset: float = 1.0) -> Floats:
        """End of the command, in seconds after its start.

        start-up + first epoch's extra + folds x (epochs x (steps x step + between) + fold's start) + ending; the start
        of the first fold and the end of the last epoch are measured as start-up and ending.
        """
        work_s = folds * (epochs * self.epoch_s(subset)) - self.step_s - self.between_s
        starts_s = (folds - 1) * self.fold_start_s
        return self.startup_s + self.first_extra_s * subset + work_s + starts_s + self.ending_s


def draw(costs: Costs, unmeasured: Unmeasured = RECORDED, draws: int = DRAWS) -> Draws:
    """Draw trainings.

    The steps: the blocks of the recording are drawn with replacement (block bootstrap: Künsch 1989), and the whole is
    multiplied by a log-normal drift, since what follows the recording differs from it by more than its own scatter. The
    ends of epochs are drawn likewise; with none recorded, from those of other trainings.
    """
    rng = np.random.default_rng(SEED)
    blocks = costs.blocks_s
    mean_s = blocks[rng.integers(len(blocks), size=(draws, len(blocks)))].mean(1)
    busy = BUSY * (costs.queued or 0.0)
    scatter = float(blocks.std(ddof=1) / blocks.mean()) if len(blocks) > 1 else 0.1
    drift = np.exp(rng.standard_normal(draws) * (unmeasured.drift + unmeasured.follows * scatter + busy))
    step_s = mean_s * drift
    epoch_s = costs.steps * step_s
    between_s = costs.between_s
    if len(between_s):
        few = np.exp(rng.standard_normal(draws) * FEW_ENDS / math.sqrt(len(between_s)))
        drawn_s = between_s[rng.integers(len(between_s), size=(draws, len(between_s)))].mean(1) * drift * few
    else:
        drawn_s = epoch_s * _quantiles(rng, unmeasured.between, draws)
    # A training's end does what an epoch's end does; then its process ends.
    ending_s = (
        drawn_s + rng.uniform(0.0, LEAVING_S, draws) if costs.ending_s is None else np.full(draws, costs.ending_s)
    )
    return Draws(
        steps=costs.steps,
        startup_s=costs.startup_s or 0.0,
        step_s=step_s,
        between_s=drawn_s,
        first_extra_s=costs.first_extra_s,
        ending_s=ending_s,
        fold_start_s=costs.fold_start_s or 0.0,
    )


def _quantiles(rng: np.random.Generator, values: tuple[float, ...], draws: int) -> Floats:
    """Draws from a distribution whose quantiles, evenly spaced from 0 to 1, are ``values``."""
    return np.interp(rng.uniform(size=draws), np.linspace(0, 1, len(values)), values)
