"""What other settings of the loader would give: the recorded batches, simulated as they are and as they would be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.rate_model import RateModel, own_handover_s
from flatout.predict.simulation import Costs, Settings, simulate
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR
from flatout.results import Gain

STEPS = 1000
SEEDS = 8  # each draws the recorded batches anew, in blocks: a block bootstrap (Künsch 1989)
# Of the logarithm of the gain, beside what the model of means has for assumptions and few batches.
_MODEL_ERROR = 0.10
_MISFIT_ERROR = 0.25  # of how far the simulation of the run as it is misses the measured rate
# Work on parameters costs the same at any batch size.
_FIXED_ACCOUNTS = ("optimizer", "collective", "logging", "checkpoint")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Settings to simulate; None: as they are.

    Attributes:
        num_workers: worker processes.
        prefetch_factor: batches ahead for each.
        batch_size: samples in a batch.
        in_order: batches in the order of their indices.
        blocked_factor: on the time that fetches wait for storage.
        cores: usable ones.
    """

    num_workers: int | None = None
    prefetch_factor: int | None = None
    batch_size: int | None = None
    in_order: bool | None = None
    blocked_factor: float = 1.0
    cores: float | None = None


class WhatIf:
    """Simulations of one measured run.

    Args:
        view: the run; its loader's fetches have the kernel's counters.
        model: fitted to it.

    Raises:
        ValueError: there is no loader, or its fetches were not counted.
    """

    def __init__(self, view: MeasuredRun, model: RateModel) -> None:
        loading = view.loading
        if loading is None or loading.fetch_cpu_s is None or loading.fetch_blocked_s is None:
            raise ValueError("the fetches of this run were not counted: nothing can be simulated")
        self._model, self._loading, self._now = model, loading, model.now
        now = model.now
        self._fixed_s = min(view.seconds(*_FIXED_ACCOUNTS) / model.batches, now.busy_s)
        helpers_s = max(now.worker_cpu_s - now.fetch_cpu_s, 0.0) if now.num_workers else 0.0
        self._cpu_s = loading.fetch_cpu_s + helpers_s
        self._blocked_s = loading.fetch_blocked_s
        self._as_it_is = self._rate(Wanted())

    @property
    def misfit(self) -> float:
        """|logarithm of the simulated over the measured rate| of the run as it is."""
        return abs(math.log(self._as_it_is / self._now.rate_sps()))

    def gain(self, wanted: Wanted) -> Gain:
        """Samples/s with these settings over samples/s as they are, both simulated.

        The interval holds all draws, widened by what the model itself was measured to err.
        """
        rates = [self._rate(wanted, seed) / self._rate(Wanted(), seed) for seed in range(SEEDS)]
        factor = float(np.mean(rates))
        relative = _MODEL_ERROR + 0.1 * len(self._model.assumptions) + 1.0 / math.sqrt(max(self._model.batches, 1))
        spread = NOISE_SHARE + (relative + _MISFIT_ERROR * min(self.misfit, 1.0)) * abs(math.log(factor))
        low, high = factor * math.exp(-spread), factor * math.exp(spread)
        if wanted.batch_size is not None:
            # Whether forward and backward grow with the batch, or mostly launch kernels, one batch size does not show.
            high = max(high, self._rate(wanted, grows=False) / self._as_it_is)
        return Gain(factor, min(low, *rates), max(high, *rates))

    def rate(self, wanted: Wanted) -> float:
        """Predicted samples/s."""
        return self._now.rate_sps() * self._rate(wanted) / self._as_it_is

    def _rate(self, wanted: Wanted, seed: int = 0, grows: bool = True) -> float:
        """Simulated samples/s, what does not overlap with loading included."""
        now, loading = self._now, self._loading
        workers = loading.num_workers if wanted.num_workers is None else wanted.num_workers
        factor = wanted.batch_size / loading.batch_size if wanted.batch_size and loading.batch_size else 1.0
        busy_s = self._fixed_s + (now.busy_s - now.queue_s - self._fixed_s) * (factor if grows else 1.0)
        main_cpu_s = min(now.main_cpu_s * busy_s / now.busy_s, busy_s)
        own_s = min(own_handover_s(loading), now.handover_s) if now.num_workers else own_handover_s(loading)
        costs = Costs(
            fetch_cpu_s=_batched(self._cpu_s, factor),
            fetch_blocked_s=_batched(self._blocked_s, factor) * wanted.blocked_factor,
            step_cpu_s=main_cpu_s,
            step_other_s=max(busy_s - main_cpu_s, 0.0),
            handover_s=own_s if workers else 0.0,
            answer_s=now.answer_s if workers else 0.0,
        )
        settings = Settings(
            num_workers=workers,
            prefetch_factor=wanted.prefetch_factor or loading.prefetch_factor or DEFAULT_PREFETCH_FACTOR,
            in_order=loading.in_order if wanted.in_order is None else wanted.in_order,
            cores=(wanted.cores or now.cores or float("inf")) * now.core_share,
            one_lock=now.locked,
        )
        step_s = 1.0 / simulate(costs, settings, STEPS, seed).rate_bps
        return now.samples * factor / (step_s + now.gap_s * factor)


def _batched(values: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Costs of larger batches: sums of consecutive ones, so that what is uneven evens out as it would."""
    whole = round(factor)
    if whole > 1 and abs(factor - whole) < 1e-9 and len(values) >= 2 * whole:
        count = len(values) // whole
        return np.asarray(values[: count * whole].reshape(count, whole).sum(1))
    return values * factor
