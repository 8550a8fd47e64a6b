"""Fit the rate model to a measured run, and predict the gain of a change, with an interval.

The interval has two parts. Measured values are resampled in blocks of consecutive batches, so that slow spells stay
together (block bootstrap, Künsch 1989). The error of the formulas is added in proportion to the size of the
predicted effect: a prediction of no change is nearly certain, one of a factor of ten is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.mean_costs import computing_s, mean_pipeline, replayed_step_s
from flatout.predict.pipeline import Change, Pipeline
from flatout.results import Gain
from flatout.units import of_cores

RESAMPLES = 200  # enough for the 5% and 95% points; the added part dominates their remaining noise
BLOCKS = 50
SEED = 0

# Of the logarithm of the gain. Published what-if models of training err by 2-10% on effects of up to 2x.
_MODEL_ERROR = 0.10
_ASSUMPTION_ERROR = 0.10  # for every input that had to be assumed
# Hand-over from workers, and their competition for cores, were not measured in a run that has none.
_UNSEEN_WORKERS_ERROR = 0.30
_UNSEEN_EFFICIENCY_ERROR = 0.25  # of the formulas' error on the measured supply

# Use by other processes that changes what a run on few cores gets; the recording itself stays far below.
_NEIGHBOURS_CORES = 0.25


@dataclass(frozen=True)
class RateModel:
    """A fitted pipeline, its resampled versions, and what had to be assumed.

    ``fastest_step_s`` is the time of a step whose batch is already there, in the fastest block measured after the
    window; None: not measured.
    """

    now: Pipeline
    resampled: tuple[Pipeline, ...]
    undisturbed: Pipeline | None  # without the other processes on the cores; None: they used hardly any
    batches: int
    assumptions: tuple[str, ...]
    fastest_step_s: float | None = None

    @cached_property
    def _resampled_sps(self) -> tuple[float, ...]:
        return tuple(pipeline.rate_sps() for pipeline in self.resampled)

    def factor(self, change: Change) -> float:
        """Predicted throughput after the change over throughput now."""
        return self.now.changed(change).rate_sps() / self.now.rate_sps()

    def recovered(self, change: Change) -> float:
        """Share of the wall time that the change gives back, 0..1."""
        return max(0.0, 1.0 - 1.0 / self.factor(change))

    def gain(self, change: Change, least: Change | None = None, most: Change | None = None) -> Gain:
        """Predict a change; ``least`` and ``most`` bound a remedy whose effect is uncertain."""
        predicted = self.factor(change)
        low, high = predicted, predicted
        for bound in dict.fromkeys((change, least or change, most or change)):
            pairs = zip(self.resampled, self._resampled_sps, strict=True)
            factors = [pipeline.changed(self._drawn(bound, pipeline)).rate_sps() / rate for pipeline, rate in pairs]
            centre = self.factor(bound)
            spread = self._spread(centre, bound)
            low = min(low, centre * math.exp(-spread), *_inner(factors))
            high = max(high, min(max(centre * math.exp(spread), *_inner(factors)), self.most(bound)))
            if self.undisturbed is not None:
                alone = self.undisturbed
                high = max(high, alone.changed(bound).rate_sps() / alone.rate_sps())
        return Gain(predicted=predicted, low=low, high=high)

    def _drawn(self, change: Change, pipeline: Pipeline) -> Change:
        """The change in a resampled run: what it takes out of a step was measured in the same steps, and varies so."""
        return replace(change, step_removed_s=change.step_removed_s * pipeline.step_s / self.now.step_s)

    def most(self, change: Change) -> float:
        """The factor that no input exceeds: that of steps whose batches are already there; infinite: not measured."""
        if self.fastest_step_s is None:
            return math.inf
        after = self.now.changed(change)
        step_s = max(self.fastest_step_s - change.step_removed_s, 0.0) + after.between_steps_s
        return max(self.now.samples / step_s / self.now.rate_sps(), 1.0) if step_s > 0 else math.inf

    def _spread(self, factor: float, change: Change) -> float:
        """Half width of the interval, as a logarithm."""
        unseen_workers = self.now.num_workers == 0 and bool(change.num_workers)
        relative = (
            _MODEL_ERROR
            + _ASSUMPTION_ERROR * len(self.assumptions)
            + _UNSEEN_WORKERS_ERROR * unseen_workers
            + _UNSEEN_EFFICIENCY_ERROR * min(1.0, abs(math.log(self.now.efficiency)))
            + 1.0 / math.sqrt(max(self.batches, 1))
        )
        return NOISE_SHARE + relative * abs(math.log(factor))


def _inner(factors: list[float]) -> tuple[float, float]:
    """5% and 95% points."""
    low, high = np.quantile(np.asarray(factors), (0.05, 0.95))
    return float(low), float(high)


def fit(run: MeasuredRun) -> RateModel | None:
    """Fit the model to a run; None when the window holds no step."""
    batches = run.loading.delivery.batches if run.loading else run.ledger.steps.count
    if batches < 1 or run.ledger.window_s <= 0:
        return None
    means, assumptions = mean_pipeline(run, batches)
    means = replace(
        means,
        replayed_step_s=replayed_step_s(run, means)[0],
        alone_batches_per_s=run.last_steps.loader_bps if means.num_workers else None,
    )
    computed_s, spinning_s = computing_s(run, means)
    means = replace(means, main_cpu_s=computed_s, spinning_cpu_s=spinning_s)
    resampled = tuple(pipeline.calibrated() for pipeline in _resample(run, means))
    undisturbed = None
    others = run.usage.other_cores
    if others is not None and others >= _NEIGHBOURS_CORES:
        assumptions = (*assumptions, f"other processes go on using {of_cores(others)}")
        undisturbed = replace(means, cores=run.cores, core_share=1.0, runqueue_part=0.0).calibrated()
    fastest_step_s = replayed_step_s(run, means)[1]
    return RateModel(means.calibrated(), resampled, undisturbed, batches, assumptions, fastest_step_s)


def _resample(run: MeasuredRun, means: Pipeline) -> list[Pipeline]:
    """Block-bootstrapped versions of ``means``: costs of batches and times of steps are drawn independently."""
    loader = run.loading
    if loader is None:
        return [means]
    random = np.random.default_rng(SEED)
    fetch = [_blocks(array) for array in (loader.fetch.cpu_s, loader.fetch.blocked_s)]
    step = [_blocks(array) for array in (loader.delivery.wait_s, loader.delivery.whole_step_s)]
    drawn = []
    for _ in range(RESAMPLES):
        cpu, blocked = _draw(random, fetch)
        wait, total = _draw(random, step)
        total_s = means.between_steps_s + (means.total_s - means.between_steps_s) * total
        wait_s = min(means.wait_s * wait, total_s - means.between_steps_s)
        drawn.append(
            replace(
                means,
                total_s=total_s,
                wait_s=wait_s,
                handover_s=min(means.handover_s, wait_s),
                worker_busy_delay_s=min(means.worker_busy_delay_s, wait_s),
                fetch_cpu_s=means.fetch_cpu_s * cpu,
                fetch_blocked_s=means.fetch_blocked_s * blocked,
                worker_cpu_s=means.worker_cpu_s * cpu,
            )
        )
    return drawn


def _blocks(values: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Means of at most ``BLOCKS`` runs of consecutive values, relative to the overall mean."""
    if values is None or len(values) == 0 or float(np.mean(values)) <= 0:
        return None
    blocks = np.array_split(np.asarray(values, dtype=np.float64), min(BLOCKS, len(values)))
    return np.array([block.mean() for block in blocks]) / float(np.mean(values))


def _draw(random: np.random.Generator, arrays: list[NDArray[np.float64] | None]) -> list[float]:
    """One resampled relative mean of each array; arrays of equal length share their draw, as they share batches."""
    draws: dict[int, NDArray[np.int64]] = {}
    means = []
    for array in arrays:
        if array is None:
            means.append(1.0)
            continue
        index = draws.setdefault(len(array), random.integers(0, len(array), len(array)))
        means.append(float(array[index].mean()))
    return means
