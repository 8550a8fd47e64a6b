"""Causes in the number and the lifetime of workers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flatout.diagnose.cause import COMPUTING_CAUSES, NEEDED_WORK, Found, Lacks, cause
from flatout.diagnose.evidence import split
from flatout.diagnose.sentences import cores, waiting, what_workers_do
from flatout.measure.loader_stats import LoaderStats, mean_s
from flatout.measure.thresholds import DOMINANT_SHARE, MATERIAL_SHARE, NOISE_SHARE, SATURATED_RUNQUEUE
from flatout.predict.context import Context
from flatout.predict.fetch_changes import SEVERAL_THREADS, computing_threads, storage_share
from flatout.predict.pipeline import Change
from flatout.predict.workers import enough_workers, first_workers, restart_seconds
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, percent

# A p95 this many times the median means that single batches block the ordered queue: more workers then give less
# than a model of means predicts.
_SKEWED = 5.0
# Of what faster code would give. In 18 programs on 2 cores whose best change is known, workers were to give 0.99 of it
# and more where they were that change, and up to 0.92 where it was the code.
_WORTH_WORKERS = 0.95
_WORTH_MORE_WORKERS = 0.4  # the same, where there are some
_LEFT = 0.3  # of the wait, that workers do not take away: it is said why


def _does_not_overlap(context: Context, found: Cause) -> str:
    wait = percent(context.run.ledger.share("batch_wait"))
    return f"The training stands still {wait} of the time to fetch its batches itself: num_workers is 0."


@cause(
    "waiting",
    needs_loader=True,
    # Idle cores come before faster code.
    hides=NEEDED_WORK,
    hides_from=_WORTH_WORKERS,
    hides_all_from=DOMINANT_SHARE,
    sentence=_does_not_overlap,
)
def no_workers(context: Context) -> Found | Lacks | None:
    """The training process fetches each batch itself, although workers could do that meanwhile."""
    run, loader, model = context.run, context.loader, context.model
    if loader.settings.num_workers > 0 or run.ledger.share("batch_wait") < NOISE_SHARE:
        return None
    workers = enough_workers(run, model)
    share = model.recovered(first_workers(run, workers))
    if share < NOISE_SHARE:
        return None
    wait = run.ledger.share("batch_wait")
    usable = "an unknown number of cores" if run.cores is None else f"{run.cores:.3g} usable cores"
    rest = wait - share
    stays: tuple[Evidence, ...] = ()
    if rest >= max(MATERIAL_SHARE, _LEFT * wait):
        text = f"{percent(rest)} of the time would still be waiting: workers share the cores, or need longer"
        stays = (Evidence(text, {"wait_that_stays": rest}),)
    return Found(
        title="the training process fetches every batch itself",
        share=share,
        confidence=0.9 if loader.fetch.cpu_s is not None and run.cores is not None else 0.6,
        evidence=(
            Evidence(
                f"num_workers is 0: the training stands still for {percent(wait)} of the time while it fetches",
                {"num_workers": 0, "batch_wait": wait},
            ),
            split(loader).evidence(),
            Evidence(
                f"{counted(workers, 'worker')} on {usable} could prepare batches while the training computes",
                {"workers": workers, "cores": run.cores if run.cores is not None else "not measured"},
            ),
            *stays,
        ),
    )


@cause(
    "waiting",
    needs_loader=True,
    hides=NEEDED_WORK,
    hides_from=_WORTH_MORE_WORKERS,
    sentence=what_workers_do,
)
def too_few_workers(context: Context) -> Found | Lacks | None:
    """Batches arrive at W / (time of a fetch), while cores or latency leave room for more concurrent fetches."""
    run, loader, model = context.run, context.loader, context.model
    if loader.settings.num_workers == 0 or not model.now.starved:
        return None
    workers = enough_workers(run, model)
    share = model.recovered(Change(num_workers=workers))
    if workers <= loader.settings.num_workers or share < NOISE_SHARE:
        if loader.fetch.cpu_s is None:
            because = "CPU time of the fetching threads was not measured, so whether cores are free is unknown"
            return Lacks(because)
        return None
    evidence = [
        Evidence(
            f"{counted(loader.settings.num_workers, 'worker')}: the {run.waiter} waits for batches "
            f"{percent(run.ledger.share('batch_wait'))} of the time",
            {"num_workers": loader.settings.num_workers, "batch_wait": run.ledger.share("batch_wait")},
        ),
        split(loader).evidence(),
    ]
    if loader.workers.idle_share is not None:
        evidence.append(
            Evidence(
                f"workers have nothing to do {percent(loader.workers.idle_share)} of the time",
                {"worker_idle_share": loader.workers.idle_share},
            )
        )
    confidence = 0.9 if loader.fetch.cpu_s is not None and run.cores is not None else 0.5
    skew = _skew(loader)
    if skew is not None and skew >= _SKEWED:
        confidence *= 0.7
        evidence.append(
            Evidence(f"slow batches take {skew:.0f} times the median one: they hold up the others", {"skew": skew})
        )
    return Found(
        title=f"{counted(loader.settings.num_workers, 'worker')} cannot fetch as fast as the training computes",
        share=share,
        confidence=confidence,
        evidence=tuple(evidence),
    )


def _take_turns(context: Context, found: Cause) -> str:
    return f"{waiting(context.run)}: the workers' threads take turns on {cores(context.run)}."


@cause(
    "data",
    needs_loader=True,
    # CPU times measured on crowded cores are not the functions' own.
    hides=COMPUTING_CAUSES,
    sentence=_take_turns,
)
def too_many_workers(context: Context) -> Found | Lacks | None:
    """More runnable threads than cores: they take turns, and slow each other and the training process down."""
    run, loader, model = context.run, context.loader, context.model
    # Workers without a core hand over finished batches late: that is waiting for cores too.
    answer = model.now.worker_busy_delay_s / model.now.total_s
    if loader.settings.num_workers == 0 or not (model.now.starved or answer >= NOISE_SHARE):
        return None
    parts = split(loader)
    if parts.runqueue is None or run.cores is None:
        missing = "usable cores were" if run.cores is None else "waiting for a core was"
        return Lacks(f"{missing} not measured")
    threads = computing_threads(run, loader)
    if parts.runqueue < SATURATED_RUNQUEUE or loader.settings.num_workers * threads <= run.cores:
        return None
    # The remaining wait for the hand-over of finished batches is not a wait for cores.
    wait = run.ledger.share("batch_wait") - max(run.ledger.share("batch_wait.ipc") - answer, 0.0)
    if threads >= SEVERAL_THREADS:
        # Threads of one fetch wait for each other at every barrier: besides the queue for a core, all blocked time
        # other than storage counts.
        storage = storage_share(loader)
        share = wait * min(1.0, parts.runqueue + (parts.blocked or 0.0) * (1.0 - storage))
    else:
        # Taking turns loses no work in itself: the loss is the work that saturated cores fail to deliver.
        whole = replace(model.now, cores=run.cores, efficiency=1.0, serial_batches_per_s=None)
        fitting = whole.changed(Change(num_workers=max(1, int(run.cores))))
        share = min(max(0.0, 1.0 - model.now.rate_sps() / fitting.rate_sps()), wait * parts.runqueue)
    if share < NOISE_SHARE:
        return None
    return Found(
        title="more worker threads than cores",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"{counted(loader.settings.num_workers, 'worker')} of {threads:.3g} computing threads on "
                f"{run.cores:.3g} usable cores",
                {"num_workers": loader.settings.num_workers, "threads": threads, "cores": run.cores},
            ),
            parts.evidence(),
        ),
    )


def _cost_more(context: Context, found: Cause) -> str:
    received, restarts = context.run.ledger.share("batch_wait.ipc"), restart_seconds(context.run)
    parts = [f"{percent(received)} of the time to receive batches"] if received >= NOISE_SHARE else []
    if restarts >= NOISE_SHARE * context.run.ledger.window_s:
        parts.append(f"{percent(restarts / context.run.ledger.window_s)} to start and end workers")
    return (
        f"Workers cost more than they save: the training takes {' and '.join(parts)}, "
        "and would take less to fetch batches itself."
    )


@cause("waiting", needs_loader=True, hides=("shallow_prefetch",), sentence=_cost_more)
def needless_workers(context: Context) -> Found | Lacks | None:
    """Workers' starts, turns on cores and batches take the training process longer than fetching itself would."""
    run, loader = context.run, context.loader
    received = run.ledger.share("batch_wait.ipc")
    restarts = restart_seconds(run) / run.ledger.window_s
    if loader.settings.num_workers == 0 or max(received, restarts) < NOISE_SHARE:
        return None
    if context.whatif is None:
        return Lacks("CPU time of the fetching threads was not measured, so what they would take elsewhere is unknown")
    gain = context.whatif.without_workers()
    # A few milliseconds here against a few there, in another process: only what is material at the least counts,
    # and what workers that are kept would not save as well.
    if 1.0 - 1.0 / gain.low < MATERIAL_SHARE or gain.low * (1.0 - restarts) < 1.0:
        return None
    taken_s, fetching_s = mean_s(loader.delivery.deserialize_s), context.model.now.fetch_s
    started: tuple[Evidence, ...] = ()
    if restarts >= NOISE_SHARE:
        text = f"starting workers anew takes another {percent(restarts)} of the time"
        started = (Evidence(text, {"restarts": restarts}),)
    return Found(
        title="workers take the training longer than fetching its batches would",
        share=1.0 - 1.0 / gain.predicted,
        confidence=0.8,
        evidence=(
            Evidence(
                f"receiving a batch from a worker takes the training {duration(taken_s)}, "
                f"fetching one takes the worker {duration(fetching_s)}",
                {"deserialize_s": taken_s, "fetch_s": fetching_s},
            ),
            *started,
        ),
    )


def _skew(loader: LoaderStats) -> float | None:
    if len(loader.fetch.wall_s) == 0:
        return None
    median = float(np.median(loader.fetch.wall_s))
    return float(np.quantile(loader.fetch.wall_s, 0.95)) / median if median > 0 else None
