"""Causes in the number of workers and in how long they live."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flatout.diagnose.causes.fetching import data_of, split
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE, SATURATED_RUNQUEUE
from flatout.predict.fetch_changes import SEVERAL_THREADS, computing_threads, storage_share
from flatout.predict.pipeline import Change
from flatout.predict.workers import enough_workers
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import counted, duration, percent

# A p95 this many times the median means that single batches hold up the ordered queue: more workers then give less
# than a model of means predicts.
_SKEWED = 5.0


def no_workers(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Fetching in the training process, one batch after the other, though workers could do it meanwhile."""
    data = data_of(view, "no_workers")
    if not isinstance(data, tuple):
        return data
    loading, model = data
    if loading.num_workers > 0 or view.ledger.share("batch_wait") < NOISE_SHARE:
        return None
    workers = enough_workers(view, model)
    share = model.recovered(Change(num_workers=workers))
    if share < NOISE_SHARE:
        return None
    wait = view.ledger.share("batch_wait")
    cores = "an unknown number of cores" if view.cores is None else f"{view.cores:.3g} usable cores"
    return Cause(
        id="no_workers",
        title="the training process fetches every batch itself",
        share=share,
        confidence=view.confidence(0.9 if loading.fetch_cpu_s is not None and view.cores is not None else 0.6),
        evidence=(
            Evidence(
                f"num_workers is 0: the training stands still for {percent(wait)} of the time while it fetches",
                {"num_workers": 0, "batch_wait": wait},
            ),
            split(loading).evidence(),
            Evidence(
                f"{counted(workers, 'worker')} on {cores} could prepare batches while the training computes",
                {"workers": workers, "cores": view.cores if view.cores is not None else "not measured"},
            ),
        ),
    )


def too_few_workers(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Batches arrive at W / (time of a fetch), while cores or latency leave room for more at once."""
    data = data_of(view, "too_few_workers")
    if not isinstance(data, tuple):
        return data
    loading, model = data
    if loading.num_workers == 0 or not model.now.starved:
        return None
    workers = enough_workers(view, model)
    share = model.recovered(Change(num_workers=workers))
    if workers <= loading.num_workers or share < NOISE_SHARE:
        if loading.fetch_cpu_s is None:
            because = "CPU time of the fetching threads was not measured, so free cores cannot be told from full ones"
            return NotMeasured("too_few_workers", because)
        return None
    evidence = [
        Evidence(
            f"{counted(loading.num_workers, 'worker')}: the {view.waiter} waits for batches "
            f"{percent(view.ledger.share('batch_wait'))} of the time",
            {"num_workers": loading.num_workers, "batch_wait": view.ledger.share("batch_wait")},
        ),
        split(loading).evidence(),
    ]
    if loading.worker_idle_share is not None:
        evidence.append(
            Evidence(
                f"workers have nothing to do {percent(loading.worker_idle_share)} of the time",
                {"worker_idle_share": loading.worker_idle_share},
            )
        )
    confidence = 0.9 if loading.fetch_cpu_s is not None and view.cores is not None else 0.5
    skew = _skew(loading)
    if skew is not None and skew >= _SKEWED:
        confidence *= 0.7
        evidence.append(
            Evidence(f"slow batches take {skew:.0f} times the median one: they hold up the others", {"skew": skew})
        )
    return Cause(
        id="too_few_workers",
        title=f"{counted(loading.num_workers, 'worker')} cannot fetch as fast as the training computes",
        share=share,
        confidence=view.confidence(confidence),
        evidence=tuple(evidence),
    )


def too_many_workers(view: MeasuredRun) -> Cause | NotMeasured | None:
    """More runnable threads than cores: they take turns, and disturb each other and the training process."""
    data = data_of(view, "too_many_workers")
    if not isinstance(data, tuple):
        return data
    loading, model = data
    # Workers that find no core hand out late what they have made: that is waiting for cores too.
    answer = model.now.answer_s / model.now.total_s
    if loading.num_workers == 0 or not (model.now.starved or answer >= NOISE_SHARE):
        return None
    parts = split(loading)
    if parts.runqueue is None or view.cores is None:
        missing = "usable cores were" if view.cores is None else "waiting for a core was"
        return NotMeasured("too_many_workers", f"{missing} not measured")
    threads = computing_threads(view, loading)
    if parts.runqueue < SATURATED_RUNQUEUE or loading.num_workers * threads <= view.cores:
        return None
    # The rest of a wait for the hand-over of finished batches is none for cores.
    wait = view.ledger.share("batch_wait") - max(view.ledger.share("batch_wait.ipc") - answer, 0.0)
    if threads >= SEVERAL_THREADS:
        # Threads of one fetch wait for each other at every barrier: beside the queue for a core, that is all
        # blocked time which is not storage.
        storage = storage_share(loading)
        share = wait * min(1.0, parts.runqueue + (parts.blocked or 0.0) * (1.0 - storage))
    else:
        # Taking turns loses no work by itself: the loss is what the full cores fail to deliver.
        whole = replace(model.now, cores=view.cores, efficiency=1.0, serial_bps=None)
        fitting = whole.changed(Change(num_workers=max(1, int(view.cores))))
        share = min(max(0.0, 1.0 - model.now.rate_sps() / fitting.rate_sps()), wait * parts.runqueue)
    if share < NOISE_SHARE:
        return None
    return Cause(
        id="too_many_workers",
        title="more worker threads than cores",
        share=share,
        confidence=view.confidence(0.8),
        evidence=(
            Evidence(
                f"{counted(loading.num_workers, 'worker')} of {threads:.3g} computing threads on "
                f"{view.cores:.3g} usable cores",
                {"num_workers": loading.num_workers, "threads": threads, "cores": view.cores},
            ),
            parts.evidence(),
        ),
    )


def worker_restart(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Workers are started anew for every epoch, and the training waits for them."""
    data = data_of(view, "worker_restart")
    if not isinstance(data, tuple):
        return data
    loading, _ = data
    if loading.num_workers == 0 or loading.persistent_workers or loading.worker_starts_in_window == 0:
        return None
    # What draws the order of an epoch stays without a restart: that is epoch_start's.
    seconds = view.seconds("epoch_boundary", "batch_wait.worker_startup") - view.seconds("epoch_boundary.start")
    if seconds <= 0:
        return NotMeasured("worker_restart", "workers were restarted, but the time between epochs was not measured")
    share = min(seconds / view.ledger.window_s, 1.0)
    if share < NOISE_SHARE:
        return None
    evidence = [
        Evidence(
            f"{counted(loading.worker_starts_in_window, 'worker')} started after the first epoch had begun: "
            f"{duration(seconds)} over {counted(loading.epochs_started, 'epoch start')}",
            {"starts": loading.worker_starts_in_window, "seconds": seconds, "epochs": loading.epochs_started},
        )
    ]
    if len(loading.worker_start_s):
        start_s = float(np.median(loading.worker_start_s))
        method = f" ({loading.start_method})" if loading.start_method else ""
        evidence.append(Evidence(f"a worker takes {duration(start_s)} to start{method}", {"worker_start_s": start_s}))
    if loading.rebuilt:
        text = "the DataLoader itself is built anew: persistent_workers=True alone would keep nothing"
        evidence.append(Evidence(text, {"rebuilt": 1}))
    return Cause(
        id="worker_restart",
        title="workers are started anew for every epoch",
        share=share,
        confidence=view.confidence(0.9),
        evidence=tuple(evidence),
    )


def _skew(loading: LoaderStats) -> float | None:
    if len(loading.fetch_s) == 0:
        return None
    median = float(np.median(loading.fetch_s))
    return float(np.quantile(loading.fetch_s, 0.95)) / median if median > 0 else None
