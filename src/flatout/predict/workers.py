"""The smallest number of workers that meets the demand, and the prefetch depth that bridges slow batches."""

from __future__ import annotations

import math

import numpy as np

from flatout.measure.measured_run import MeasuredRun
from flatout.predict.pipeline import NO_UNEVENNESS, Change
from flatout.predict.rate_model import RateModel
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR

# Storage latency is known only at the concurrency that was measured: further than this it is a guess.
_EXTRAPOLATION = 4
# Workers beyond the first that comes this close to the best rate cost memory and give nothing measurable.
_NEARLY = 0.98


# Of a pass that starts workers and ends them again, until the first batch and after the last: 36 + 14 ms for one, and
# 52 + 21 ms for two, as measured on one machine.
_PASS_S, _EACH_WORKER_S = 0.027, 0.023


def first_workers(run: MeasuredRun, workers: int) -> Change:
    """The change from no workers to this many; where the loader is made anew for each pass, each starts its own."""
    loader = run.loading
    passes, batches = (loader.delivery.epochs_started, loader.delivery.batches) if loader is not None else (0, 0)
    if loader is None or not loader.settings.rebuilt or loader.settings.num_workers or not batches:
        return Change(num_workers=workers)
    return Change(num_workers=workers, step_removed_s=-passes / batches * (_PASS_S + workers * _EACH_WORKER_S))


def restart_seconds(run: MeasuredRun) -> float:
    """Seconds of the window that the training waits for new workers of its own DataLoader; 0 where it starts none."""
    loader = run.loading
    if loader is None or not loader.restarts_workers:
        return 0.0
    # What draws the order of an epoch stays without a restart: that is epoch_start's.
    seconds = run.seconds("epoch_boundary", "batch_wait.worker_startup") - run.seconds("epoch_boundary.start")
    return max(seconds + loader.workers.first_fetch.waited_s, 0.0)


def most_workers(run: MeasuredRun) -> int:
    """Largest number considered: bounded by what was measured, the cores, host memory and /dev/shm."""
    loader = run.loading
    now = loader.settings.num_workers if loader else 0
    limit = max(_EXTRAPOLATION * now, math.ceil(2 * run.cores) if run.cores else 2)
    usage = run.usage
    if usage.worker_bytes and usage.available_bytes is not None:
        # Half of the free memory stays free: the page cache that serves the files lives there.
        limit = min(limit, now + int(usage.available_bytes / 2 // usage.worker_bytes))
    if loader and loader.delivery.batch_bytes and usage.shm_free_bytes is not None:
        # Batches wait for the training in /dev/shm: a full one ends the workers with a bus error.
        limit = min(
            limit,
            now
            + usage.shm_free_bytes
            // (loader.delivery.batch_bytes * (loader.settings.prefetch_factor or DEFAULT_PREFETCH_FACTOR)),
        )
    return max(limit, now, 1)


def enough_workers(run: MeasuredRun, model: RateModel) -> int:
    """Smallest ``num_workers`` that nearly reaches the best predicted rate.

    The model's workers' limit is Little's law: batches in flight = rate x time of a fetch.
    """
    rates = {
        workers: model.now.changed(Change(num_workers=workers)).rate_sps()
        for workers in range(1, most_workers(run) + 1)
    }
    best = max(rates.values())
    return min(workers for workers, rate in rates.items() if rate >= _NEARLY * best)


def enough_prefetch(run: MeasuredRun, model: RateModel, num_workers: int) -> int | None:
    """Smallest ``prefetch_factor`` with W x prefetch >= ceil(p99(fetch) / step) + 1; None when not measured.

    The step is the one that even batches would allow: the queue has to carry a slow batch at that speed.
    """
    loader = run.loading
    if loader is None or num_workers < 1 or len(loader.fetch.wall_s) == 0:
        return None
    target_s = (
        model.now.samples
        / model.now.changed(Change(num_workers=num_workers, throughput_factor=NO_UNEVENNESS)).rate_sps()
    )
    batches = math.ceil(float(np.quantile(loader.fetch.wall_s, 0.99)) / target_s) + 1
    return max(2, math.ceil(batches / num_workers))
