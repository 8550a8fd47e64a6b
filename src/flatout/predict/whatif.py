"""The effect of other loader settings: the recorded batches, simulated with the current and with the new settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.mean_costs import own_handover_s
from flatout.predict.pipeline import Change
from flatout.predict.rate_model import RateModel
from flatout.predict.simulation import Costs, Settings, least_seconds, simulate
from flatout.predict.workers import restart_seconds
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR
from flatout.results import Gain

STEPS = 1000
SEEDS = 8  # each draws the recorded batches anew, in blocks: a block bootstrap (Künsch 1989)
# Of the logarithm of the gain, in addition to the errors of the model of means for assumptions and few batches.
_MODEL_ERROR = 0.10
_MISFIT_ERROR = 0.25  # of the error of the simulation on the measured rate of the unchanged run
_LEAST_S = 1e-9  # keeps divisions defined
# Work on parameters costs the same at any batch size.
_FIXED_ACCOUNTS = ("optimizer", "collective", "logging", "checkpoint")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Settings to simulate; None: unchanged.

    Attributes:
        num_workers: worker processes.
        prefetch_factor: batches ahead for each.
        batch_size: samples in a batch.
        in_order: batches in the order of their indices.
        blocked_factor: on the time that fetches wait for storage.
        cores: usable ones.
        starts_removed_s: of the time between two steps, that workers' starts and ends took.
    """

    num_workers: int | None = None
    prefetch_factor: int | None = None
    batch_size: int | None = None
    in_order: bool | None = None
    blocked_factor: float = 1.0
    cores: float | None = None
    starts_removed_s: float = 0.0


class WhatIf:
    """Simulations of one measured run.

    Args:
        run: the run; its loader's fetches have the kernel's counters.
        model: fitted to it.

    Raises:
        ValueError: there is no loader, or its fetches were not counted.
    """

    def __init__(self, run: MeasuredRun, model: RateModel) -> None:
        loader = run.loading
        if loader is None or loader.fetch.cpu_s is None or loader.fetch.blocked_s is None:
            raise ValueError("the fetches of this run were not counted: nothing can be simulated")
        self._run, self._model, self._loader, self._now = run, model, loader, model.now
        now = model.now
        self._doubled = run.last_steps.doubled
        fixed_s = run.seconds(*_FIXED_ACCOUNTS) / model.batches
        self._fixed_s = min(fixed_s if self._doubled is None else self._doubled.fixed * now.step_s, now.step_s)
        helpers_s = max(now.worker_cpu_s - now.fetch_cpu_s, 0.0) if now.num_workers else 0.0
        self._cpu_s = loader.fetch.cpu_s + helpers_s
        self._blocked_s = loader.fetch.blocked_s
        self._simulated: dict[tuple[Wanted, int, bool], float] = {}
        self._as_it_is = self._rate(Wanted())

    @property
    def misfit(self) -> float:
        """|logarithm of the simulated over the measured rate| of the run as it is."""
        return abs(math.log(self._as_it_is / self._now.rate_sps()))

    def gain(self, wanted: Wanted) -> Gain:
        """Samples/s with these settings over samples/s as they are, both simulated.

        The interval holds all draws, widened by the measured error of the model.
        """
        most = self._model.most(Change()) if wanted.batch_size is None else math.inf
        rates = [min(self._rate(wanted, seed) / self._rate(Wanted(), seed), most) for seed in range(SEEDS)]
        factor = float(np.mean(rates))
        relative = _MODEL_ERROR + 0.1 * len(self._model.assumptions) + 1.0 / math.sqrt(max(self._model.batches, 1))
        spread = NOISE_SHARE + (relative + _MISFIT_ERROR * min(self.misfit, 1.0)) * abs(math.log(factor))
        low, high = factor * math.exp(-spread), min(factor * math.exp(spread), most)
        if wanted.batch_size is not None and self._doubled is None:
            # Whether forward and backward grow with the batch, or mostly launch kernels, one batch size does not show.
            high = max(high, self._rate(wanted, grows=False) / self._as_it_is)
        return Gain(factor, min(low, *rates), max(high, *rates))

    def without_workers(self) -> Gain:
        """Fetching in the training process, where neither starts of workers nor their turns on cores take time.

        What the run as it is loses beyond its simulation is lost to workers in part: the prediction is the geometric
        mean of the gains over the simulated and over the measured rate, and its interval holds both.
        """
        starts_s = min(restart_seconds(self._run) / self._model.batches, self._now.between_steps_s)
        wanted = Wanted(num_workers=0, starts_removed_s=starts_s)
        simulated, measured = self.gain(wanted), self._rate(wanted) / self._now.rate_sps()
        predicted = math.sqrt(simulated.predicted * measured)
        return Gain(predicted, min(simulated.low, measured), max(simulated.high, measured))

    def rate(self, wanted: Wanted) -> float:
        """Predicted samples/s."""
        return self._now.rate_sps() * self._rate(wanted) / self._as_it_is

    def bound(self, wanted: Wanted) -> float:
        """Samples/s that ``rate`` cannot exceed, without a simulation.

        Args:
            wanted: with at least one worker.
        """
        costs, settings, factor = self._inputs(wanted, grows=True)
        step_s = least_seconds(costs, settings, STEPS) / STEPS
        return self._now.rate_sps() * self._with_gaps(step_s, factor, wanted) / self._as_it_is

    def _rate(self, wanted: Wanted, seed: int = 0, grows: bool = True) -> float:
        """Simulated samples/s over wall time; each combination is simulated once."""
        key = (wanted, seed, grows)
        if key not in self._simulated:
            self._simulated[key] = self._simulate(*key)
        return self._simulated[key]

    def _simulate(self, wanted: Wanted, seed: int, grows: bool) -> float:
        costs, settings, factor = self._inputs(wanted, grows)
        return self._with_gaps(1.0 / simulate(costs, settings, STEPS, seed).batches_per_s, factor, wanted)

    def _with_gaps(self, step_s: float, factor: float, wanted: Wanted) -> float:
        """Samples/s of batches ``factor`` times as large, time between steps included."""
        step_s = max(step_s, self._now.replayed_step_s * min(factor, 1.0))
        between_s = self._now.between_steps_s - wanted.starts_removed_s
        return self._now.samples * factor / max(step_s + between_s * factor, _LEAST_S)

    def _inputs(self, wanted: Wanted, grows: bool) -> tuple[Costs, Settings, float]:
        """Costs and settings to simulate, and the factor on the batch size."""
        now, loader = self._now, self._loader
        workers = loader.settings.num_workers if wanted.num_workers is None else wanted.num_workers
        size = loader.settings.batch_size
        factor = wanted.batch_size / size if wanted.batch_size and size else 1.0
        # What threads spin for one that has no core is no queueing that the simulation makes by itself.
        queued_s = now.main_runqueue_s - now.spun_s * min(workers / max(now.num_workers, 1), 1.0)
        step_s = self._fixed_s + (now.step_s - queued_s - self._fixed_s) * (factor if grows else 1.0)
        main_cpu_s = min(now.main_cpu_s * step_s / now.step_s, step_s)
        own_s = min(own_handover_s(loader), now.handover_s) if now.num_workers else own_handover_s(loader)
        costs = Costs(
            fetch_cpu_s=_batched(self._cpu_s, factor),
            fetch_blocked_s=_batched(self._blocked_s, factor) * wanted.blocked_factor,
            step_cpu_s=main_cpu_s,
            step_other_s=max(step_s - main_cpu_s, 0.0),
            handover_s=own_s if workers else 0.0,
            worker_busy_delay_s=now.worker_busy_delay_s if workers else 0.0,
        )
        settings = Settings(
            num_workers=workers,
            prefetch_factor=wanted.prefetch_factor or loader.settings.prefetch_factor or DEFAULT_PREFETCH_FACTOR,
            in_order=loader.settings.in_order if wanted.in_order is None else wanted.in_order,
            cores=(wanted.cores or now.cores or float("inf")) * now.core_share,
            one_lock=now.locked,
        )
        return costs, settings, factor


def _batched(values: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Costs of larger batches: sums of consecutive ones, so that unevenness averages out as in reality."""
    whole = round(factor)
    if whole > 1 and abs(factor - whole) < 1e-9 and len(values) >= 2 * whole:
        count = len(values) // whole
        return np.asarray(values[: count * whole].reshape(count, whole).sum(1))
    return values * factor
