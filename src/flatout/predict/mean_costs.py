"""The mean costs of one batch, from a measured run: what the rate model is fitted with."""

from __future__ import annotations

import math

import numpy as np

from flatout.measure.loader_stats import LoaderStats, mean_s
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import DOMINANT_SHARE
from flatout.predict.pipeline import Pipeline

# Receiving two tensors from an idle worker through shared memory: mapping them copies nothing, whatever their size.
HANDED_OUT_S = 0.3e-3
# The rate at which one core copies through a pipe and unpickles: arrays and lists that are not tensors.
PIPE_BYTES_PER_S = 5e8

# Accounts between steps: workers cannot prepare this time ahead.
BETWEEN_STEPS_ACCOUNTS = ("validation", "checkpoint", "epoch_boundary")
# Blocked groups in which one worker waits for another.
LOCK_GROUPS = ("lock",)


def mean_pipeline(run: MeasuredRun, batches: int) -> tuple[Pipeline, tuple[str, ...]]:
    """Mean costs of a batch, with the sentences that say what was assumed."""
    total_s = run.ledger.window_s / batches
    between_steps_s = run.seconds(*BETWEEN_STEPS_ACCOUNTS) / batches
    samples = _samples(run, batches)
    loader = run.loading
    if loader is None:
        alone = Pipeline(num_workers=0, samples=samples, total_s=total_s, wait_s=0.0, between_steps_s=between_steps_s)
        return alone, ()
    # The order of a pass is drawn in its first wait, and no worker can do that meanwhile.
    sampling_s = loader.delivery.sampling_s / batches
    # The indices of a batch are chosen in the training process: workers cannot take that off it.
    wait_s = max(run.seconds("batch_wait") / batches - sampling_s - loader.delivery.indices_s / batches, 0.0)
    between_steps_s += sampling_s
    workers = loader.settings.num_workers
    cpu_s, blocked_s, assumed_fetch = _fetch_s(loader)
    main_cpu_s, assumed_main = _main_cpu_s(run, total_s - wait_s - between_steps_s, cpu_s, total_s)
    cores, core_share, runqueue_part = _share_of_cores(run, loader)
    handover_s = min(mean_s(loader.delivery.deserialize_s), wait_s) if workers else 0.0
    worker_cpu_s = _worker_cpu_s(loader, cpu_s)
    slowed_s = _slowed_s(run, total_s - wait_s - between_steps_s)
    # The training waits for a core that workers have no longer than they have one.
    queued_s = min(_main_runqueue_s(run, total_s), worker_cpu_s)
    core_wait_s = min(max(queued_s, slowed_s), worker_cpu_s)
    pipeline = Pipeline(
        num_workers=workers,
        samples=samples,
        total_s=total_s,
        wait_s=wait_s,
        between_steps_s=between_steps_s,
        handover_s=handover_s,
        worker_busy_delay_s=max(handover_s - own_handover_s(loader), 0.0),
        fetch_cpu_s=cpu_s,
        fetch_blocked_s=blocked_s,
        core_share=core_share,
        runqueue_part=runqueue_part,
        worker_cpu_s=worker_cpu_s,
        main_cpu_s=main_cpu_s,
        main_runqueue_s=core_wait_s if workers else 0.0,
        spun_s=core_wait_s - queued_s if workers else 0.0,
        cores=cores,
        locked=_is_locked(loader, cpu_s, blocked_s),
    )
    assumed_cores = "the usable cores are not known" if cores is None else None
    return pipeline, tuple(text for text in (assumed_fetch, assumed_main, assumed_cores) if text)


def replayed_step_s(run: MeasuredRun, means: Pipeline) -> tuple[float, float | None]:
    """A step whose batch is already there, median and fastest block; (0, None): not measured.

    Never longer than the window's: that the machine was busier afterwards shows nothing. The time beside the wait
    bounds it too, unless a GPU computes during that wait and nobody timed it.
    """
    ceiling = run.last_steps.ceiling
    if ceiling is None or run.loading is None:
        return 0.0, None
    whole_s = max(means.total_s - means.between_steps_s, 0.0)
    now_s = min(means.step_s + means.handover_s, whole_s) if run.uses_gpu is False or run.device_timed else whole_s
    return min(ceiling.step_s, now_s), min(ceiling.low_s, now_s)


def computing_s(run: MeasuredRun, means: Pipeline) -> tuple[float, float]:
    """CPU seconds of a step without those in which its threads wait for each other, and those, within the step.

    Idle OpenMP threads spin, which counts as CPU time and gives way to workers, where there are some. A step whose
    batch is already there, with nothing beside it, needs at most all its threads for its time; so does taking over a
    batch, but for waiting until its worker gives it. Choosing indices is work of one thread. What they spin for one
    whose core a worker has is no idleness.
    """
    if run.uses_gpu is not False or not means.replayed_step_s or run.loading is None or not means.num_workers:
        return means.main_cpu_s, 0.0
    threads = max(min(run.process.threads or 1, run.cores or math.inf), 1.0)
    indices_s = run.loading.delivery.indices_s / run.loading.delivery.batches
    computed_s, in_steps_s = (
        min(means.main_cpu_s, threads * (step_s + means.handover_s - means.worker_busy_delay_s) + indices_s)
        for step_s in (means.replayed_step_s, means.step_s)
    )
    return computed_s, max(in_steps_s - computed_s, 0.0)


def _samples(run: MeasuredRun, batches: int) -> float:
    """Samples of a batch. Where they could not be counted, every batch counts as one: gains are ratios."""
    counted = run.loading.delivery.samples if run.loading else run.ledger.steps.samples
    return (counted or batches) / batches


def _fetch_s(loader: LoaderStats) -> tuple[float, float, str | None]:
    """Seconds of a fetch on a core and blocked; a sentence when they are assumed.

    Without counters, calling the whole fetch CPU time is the assumption that promises least from more workers.
    """
    if loader.fetch.cpu_s is None:
        return mean_s(loader.fetch.wall_s), 0.0, "a fetch is taken to be all CPU time"
    return mean_s(loader.fetch.cpu_s), mean_s(loader.fetch.blocked_s), None


def _worker_cpu_s(loader: LoaderStats, fetch_cpu_s: float) -> float:
    """CPU seconds of a batch in its worker = max(all threads, fetching thread) + serializing."""
    process_s = max(mean_s(loader.fetch.process_cpu_s), fetch_cpu_s)
    return process_s + (mean_s(loader.delivery.serialize_s) if loader.settings.num_workers else 0.0)


def _share_of_cores(run: MeasuredRun, loader: LoaderStats) -> tuple[float | None, float, float]:
    """Cores that other processes leave, a ready fetch's share of one, and run-queue / (on-CPU + run-queue).

    Fewer threads than cores do not wait for each other: then the delay is the neighbours', and makes the share.
    """
    cpu_s, runqueue_s = mean_s(loader.fetch.cpu_s), mean_s(loader.fetch.runqueue_s)
    runqueue_part = runqueue_s / (cpu_s + runqueue_s) if cpu_s + runqueue_s > 0 else 0.0
    if run.cores is None:
        return None, 1.0, runqueue_part
    workers = loader.settings.num_workers
    cores = min(run.cores, _cores_beside(run, run.cores, 1 + max(workers, 1)))
    if run.usage.other_cores is not None and workers < cores:
        return cores, 1.0 - runqueue_part, 0.0
    return cores, 1.0, runqueue_part


def _is_locked(loader: LoaderStats, cpu_s: float, blocked_s: float) -> bool:
    """True if, with several workers, lock waits exceed half of max(wall, CPU + blocked) of a fetch."""
    lock_s = blocked_s * sum(loader.functions.blocked_groups.get(group, 0.0) for group in LOCK_GROUPS)
    fetch_s = max(mean_s(loader.fetch.wall_s), cpu_s + blocked_s)
    return loader.settings.num_workers > 1 and lock_s > DOMINANT_SHARE * fetch_s


def own_handover_s(loader: LoaderStats) -> float:
    """Seconds that taking over a batch takes when its worker has nothing else to do.

    Idle workers hand out soonest: the median of the shortest hand-overs, as large a part of all as workers are idle.
    """
    least_s = HANDED_OUT_S + loader.delivery.pickled_bytes / PIPE_BYTES_PER_S
    idle, taken_s = loader.workers.idle_share, loader.delivery.deserialize_s
    return max(least_s, float(np.quantile(taken_s, idle / 2))) if idle and len(taken_s) else least_s


def _cores_beside(run: MeasuredRun, cores: float, threads: int) -> float:
    """Cores that other processes leave to a run of ``threads`` threads: the idle ones, but at least a fair share."""
    others, online = run.usage.other_cores, run.usage.online_cores
    if others is None or online is None:
        return cores
    return max(online - others, online * threads / (threads + others))


def _main_cpu_s(run: MeasuredRun, step_s: float, fetch_cpu_s: float, total_s: float) -> tuple[float, str | None]:
    """CPU seconds of the training process for a batch, fetching left out; a sentence when it is assumed."""
    loader = run.loading
    fetching_s = fetch_cpu_s if loader and loader.settings.num_workers == 0 else 0.0
    if run.usage.main_cores is not None:
        return max(run.usage.main_cores * total_s - fetching_s, 0.0), None
    threads = 1.0
    if not run.uses_gpu:
        threads = float(run.process.threads or 1)
        if run.cores is not None:
            threads = min(threads, max(run.cores, 1.0))
    return threads * max(step_s, 0.0), "the training process is taken to keep its threads busy while it computes"


def _slowed_s(run: MeasuredRun, step_s: float) -> float:
    """Seconds by which a step on the CPU is longer beside its workers than with its batch there and no worker at work.

    The kernel's counters do not show them: the threads of an operator spin on their cores while they wait for the one
    whose core a worker has.
    """
    ceiling, threads = run.last_steps.ceiling, run.process.threads
    if run.uses_gpu is not False or run.loading is None or ceiling is None or run.cores is None or not threads:
        return 0.0
    if threads + run.loading.settings.num_workers <= run.cores:
        return 0.0
    others = run.usage.other_cores or 0.0
    return max(step_s - ceiling.high_s, 0.0) * max(1.0 - others / run.cores, 0.0)


def _main_runqueue_s(run: MeasuredRun, total_s: float) -> float:
    """Seconds of a step in which its thread waits for a core that the workers have; other processes' part left out."""
    share = run.usage.main_runqueue_share
    if share is None or not run.cores:
        return 0.0
    others = run.usage.other_cores or 0.0
    return share * total_s * max(1.0 - others / run.cores, 0.0)
