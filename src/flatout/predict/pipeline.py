"""The rate model: samples/s from the mean costs of one batch, before and after a change to them.

Source: operational bounds of closed queueing systems (Denning and Buzen, 1978). A pipeline of workers and a training
step is limited by whichever of these is least; Little's law gives the batches in flight.

- workers: W / (t_cpu + t_blocked), each worker fetching one batch at a time
- cores: C / (CPU seconds of a batch in its worker + CPU seconds of a step in the training process)
- serial: the rate at which one shared lock lets batches pass
- training: 1 / (step without its wait + hand-over of a batch); no more than one whose batch is already there allows,
  where that was measured after the window

A step that waits for a core waits longer the more the workers compute: that part of it is proportional to their CPU
seconds, as under fair scheduling. A worker's thread that hands a batch out waits for a core and for the interpreter's
lock, which the fetching thread has: that part is proportional to how busy a worker is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from flatout.measure.thresholds import MATERIAL_SHARE, NOISE_SHARE, SATURATED_RUNQUEUE

NO_UNEVENNESS = float("inf")  # a throughput_factor: no loss to uneven batches
_LEAST_S = 1e-9  # keeps divisions defined where a change removes a cost completely


@dataclass(frozen=True, kw_only=True)
class Change:
    """The effect of a remedy on the inputs of the model. The defaults change nothing."""

    num_workers: int | None = None
    fetch_cpu_factor: float = 1.0  # on the CPU time of a fetch
    fetch_blocked_factor: float = 1.0  # on its blocked time
    helper_cpu_factor: float | None = None  # on the CPU time of the worker's other threads; None: as that of the fetch
    fetch_cpu_added_s: float = 0.0  # moved into the workers, a batch
    worker_threads_removed: bool = False  # only the fetch thread computes
    step_removed_s: float = 0.0  # a batch, from the part of the step that overlaps with loading
    step_cpu_removed_s: float = 0.0  # the CPU time in it
    between_steps_removed_s: float = 0.0  # a batch, from what does not overlap with loading
    throughput_factor: float = 1.0  # on the workers' rate: what another queue makes of the same fetches
    handover_factor: float = 1.0  # on the time of taking over a batch
    lock_removed: bool = False  # workers no longer wait for each other

    def and_then(self, other: Change, step_s: float = math.inf) -> Change:
        """Both changes: factors multiply, what is removed adds up, and the later number of workers holds.

        Args:
            other: made after this one.
            step_s: of a step now, in seconds: what the other change takes out of it, it takes out of what this one
                leaves, in proportion, since both may shorten the same operators.
        """
        left = 1.0 if math.isinf(step_s) else max(1.0 - self.step_removed_s / max(step_s, _LEAST_S), 0.0)
        helpers = [factor for factor in (self.helper_cpu_factor, other.helper_cpu_factor) if factor is not None]
        return Change(
            num_workers=self.num_workers if other.num_workers is None else other.num_workers,
            fetch_cpu_factor=self.fetch_cpu_factor * other.fetch_cpu_factor,
            fetch_blocked_factor=self.fetch_blocked_factor * other.fetch_blocked_factor,
            helper_cpu_factor=math.prod(helpers) if helpers else None,
            fetch_cpu_added_s=self.fetch_cpu_added_s + other.fetch_cpu_added_s,
            worker_threads_removed=self.worker_threads_removed or other.worker_threads_removed,
            step_removed_s=self.step_removed_s + left * other.step_removed_s,
            step_cpu_removed_s=self.step_cpu_removed_s + left * other.step_cpu_removed_s,
            between_steps_removed_s=self.between_steps_removed_s + other.between_steps_removed_s,
            throughput_factor=self.throughput_factor * other.throughput_factor,
            handover_factor=self.handover_factor * other.handover_factor,
            lock_removed=self.lock_removed or other.lock_removed,
        )


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Mean costs of one batch, in seconds unless stated otherwise."""

    num_workers: int
    samples: float  # in a batch
    total_s: float  # wall time, everything included
    wait_s: float  # the training waiting for the batch; with 0 workers, fetching it
    between_steps_s: float = 0.0  # validation, checkpoints, epoch boundaries: workers' queues fill only to their depth
    handover_s: float = 0.0  # deserializing, in the training process
    worker_busy_delay_s: float = 0.0  # part of handover_s spent waiting for a worker that fetches its next batch
    fetch_cpu_s: float = 0.0  # fetch thread on a core
    fetch_blocked_s: float = 0.0
    core_share: float = 1.0  # of a core that a ready fetch thread gets, given the other processes
    runqueue_part: float = 0.0  # run-queue / (on-CPU + run-queue)
    worker_cpu_s: float = 0.0  # all threads of the worker, serializing included
    main_cpu_s: float = 0.0
    spinning_cpu_s: float = 0.0  # beside main_cpu_s: its threads wait for one that has no core, and hold theirs
    main_runqueue_s: float = 0.0  # the training's threads, ready, waiting for a core that the workers have
    spun_s: float = 0.0  # the part of main_runqueue_s in which they spin for the one that waits
    cores: float | None = None  # usable by this run, other processes' use taken off
    locked: bool = False  # most of the fetch waits for one lock
    efficiency: float = 1.0  # measured supply / modelled supply; lost to uneven batches and hand-over
    serial_batches_per_s: float | None = None  # that pass the lock
    replayed_step_s: float = 0.0  # a step whose batch is already there, measured after the window; 0: not measured
    alone_batches_per_s: float | None = None  # of the loader while nothing computes, measured after the window

    @property
    def step_s(self) -> float:
        """The part of a step that is not waiting and overlaps with loading."""
        return max(self.total_s - self.wait_s - self.between_steps_s, _LEAST_S)

    @property
    def fetch_s(self) -> float:
        """One batch in one worker; of waiting for a core, only the part that other processes cause counts."""
        return max(self.fetch_cpu_s / self.core_share + self.fetch_blocked_s, _LEAST_S)

    @property
    def core_wait_share(self) -> float:
        """Share of the time in which the training's threads wait for a core that the workers have."""
        return self.main_runqueue_s / self.total_s if self.total_s > 0 else 0.0

    @property
    def spare_share(self) -> float:
        """Share of the time by which a step may shorten before the fetches, side by side, take as long as it."""
        if not self.num_workers:
            return 1.0
        return max(1.0 - self.fetch_s / self.num_workers / self.total_s, 0.0)

    @property
    def starved(self) -> bool:
        """True if the training waits for batches beyond their hand-over."""
        return (self.wait_s - self.handover_s) > NOISE_SHARE * self.total_s

    def limits(self) -> dict[str, float]:
        """Batches/s that each limit alone would allow while training runs; unknown limits are left out."""
        limits = {"training": 1.0 / max(self.step_s + self.handover_s, self.replayed_step_s)}
        if self.num_workers == 0:
            return {"training": 1.0 / max(self.step_s + self.wait_s, self.replayed_step_s, _LEAST_S)}
        limits["workers"] = self.efficiency * self.num_workers / self.fetch_s
        cpu_s = self.worker_cpu_s + self.main_cpu_s
        if self.cores is not None and cpu_s > 0:
            limits["cores"] = self.cores / cpu_s * min(self.efficiency, 1.0)
        if self.serial_batches_per_s is not None:
            limits["serial"] = self.serial_batches_per_s
        return limits

    def rate_sps(self) -> float:
        """Throughput in samples/s over wall time."""
        step_s = 1.0 / min(self.limits().values())
        return self.samples / (step_s + self.between_steps_s)

    def calibrated(self) -> Pipeline:
        """Fit the parameters that formulas cannot give, so that the model reproduces the measured rate.

        A starved run measures the supply itself. Where run-queue delay shows full cores, the cores' limit is the
        measured rate; otherwise the difference between model and measurement is the workers' efficiency.
        """
        if self.num_workers == 0:
            return self
        measured_batches_per_s = 1.0 / max(self.total_s - self.between_steps_s, _LEAST_S)
        fitted = replace(
            self,
            cores=_cores_fitted(self, measured_batches_per_s),
            serial_batches_per_s=measured_batches_per_s if self.locked and self.starved else None,
        )
        return replace(fitted, efficiency=_efficiency_fitted(fitted, measured_batches_per_s))

    def changed(self, change: Change) -> Pipeline:
        """The pipeline after a change; a calibration stays in force."""
        workers = self.num_workers if change.num_workers is None else change.num_workers
        fetch_cpu_s = self.fetch_cpu_s * change.fetch_cpu_factor + change.fetch_cpu_added_s
        fetch_blocked_s = self.fetch_blocked_s * change.fetch_blocked_factor
        worker_cpu_s = fetch_cpu_s + _helper_cpu_after(self, change)
        main_runqueue_s = _main_runqueue_after(self, worker_cpu_s if workers else 0.0)
        kept = _kept_of_step(self, main_runqueue_s)
        delay_s = _worker_busy_delay_after(self, workers, worker_cpu_s)
        wait_s = _wait_after(self, workers, fetch_cpu_s / self.core_share + fetch_blocked_s)
        slowed_s = 0.0 if workers else _slowed_after(self, wait_s)
        step_s = max(self.step_s - change.step_removed_s - slowed_s, _LEAST_S) * kept
        between_steps_s = max(self.between_steps_s - change.between_steps_removed_s, 0.0)
        return replace(
            self,
            num_workers=workers,
            total_s=step_s + wait_s + between_steps_s,
            wait_s=wait_s,
            between_steps_s=between_steps_s,
            fetch_cpu_s=fetch_cpu_s,
            fetch_blocked_s=fetch_blocked_s,
            worker_cpu_s=worker_cpu_s,
            main_cpu_s=_main_cpu_after(self, change, workers, worker_cpu_s),
            main_runqueue_s=main_runqueue_s,
            efficiency=_efficiency_after(self, change),
            handover_s=((self.handover_s - self.worker_busy_delay_s) * kept + delay_s) * change.handover_factor,
            worker_busy_delay_s=delay_s * change.handover_factor,
            locked=self.locked and not change.lock_removed,
            serial_batches_per_s=None if change.lock_removed else self.serial_batches_per_s,
            replayed_step_s=max(self.replayed_step_s - change.step_removed_s, 0.0),
        )


# Calibration: one function a term.


def _cores_fitted(now: Pipeline, batches_per_s: float) -> float | None:
    """Cores that the run can use.

    obtained = measured rate x CPU seconds of a batch, in worker and training process. The run has at least these
    cores; where it is starved and its fetches queue for a core, it has no more.
    """
    if now.cores is None:
        return None
    obtained = batches_per_s * (now.worker_cpu_s + now.main_cpu_s)
    # A fetch that is mostly blocked leaves its core idle, however long it queued for its few CPU moments.
    queued_s = now.runqueue_part * now.fetch_cpu_s / max(1.0 - now.runqueue_part, _LEAST_S)
    crowded = queued_s >= MATERIAL_SHARE * (now.fetch_s + queued_s) and now.runqueue_part >= SATURATED_RUNQUEUE
    return obtained if now.starved and crowded else max(now.cores, obtained)


def _efficiency_fitted(now: Pipeline, batches_per_s: float) -> float:
    """Measured rate / modelled supply, in a starved run; otherwise that of the loader alone, or 1 if it is not known.

    A training that does not wait shows only that the supply is at least the measured rate. A short wait despite ample
    supply is hand-over and unevenness: it does not measure the supply either.
    """
    limits = now.limits()
    supply = min(rate for name, rate in limits.items() if name != "training")
    ample = supply > limits["training"] and now.wait_s < MATERIAL_SHARE * now.total_s
    reached = batches_per_s / supply
    if now.starved and not ample:
        return reached
    alone = 1.0 if now.alone_batches_per_s is None else min(now.alone_batches_per_s / supply, 1.0)
    return max(reached, alone)


# A change: one function a term.


def _helper_cpu_after(now: Pipeline, change: Change) -> float:
    """CPU seconds of a worker's other threads = (worker's - fetching thread's) x factor; 0 when they are removed."""
    if change.worker_threads_removed:
        return 0.0
    factor = change.fetch_cpu_factor if change.helper_cpu_factor is None else change.helper_cpu_factor
    return (now.worker_cpu_s - now.fetch_cpu_s) * factor


def _main_runqueue_after(now: Pipeline, worker_cpu_s: float) -> float:
    """Wait of the training thread for a core = the wait now x workers' CPU seconds after / now, and no longer."""
    return now.main_runqueue_s * min(worker_cpu_s / now.worker_cpu_s, 1.0) if now.worker_cpu_s > 0 else 0.0


def _main_cpu_after(now: Pipeline, change: Change, workers: int, worker_cpu_s: float) -> float:
    """CPU seconds of a step = those now - removed, and beside more workers those of the threads that spin.

    Spinning = that now x workers' CPU seconds after / now, and no longer.
    """
    computed_s = max(now.main_cpu_s - change.step_cpu_removed_s, 0.0)
    if workers <= now.num_workers or now.worker_cpu_s <= 0:
        return computed_s
    return computed_s + now.spinning_cpu_s * min(worker_cpu_s / now.worker_cpu_s, 1.0)


def _kept_of_step(now: Pipeline, main_runqueue_s: float) -> float:
    """Remaining part of step and own hand-over = 1 - (wait for a core now - after) / (step + own hand-over).

    What of the hand-over busy workers delay is no part of the training's own wait.
    """
    own_s = now.step_s + now.handover_s - now.worker_busy_delay_s
    return 1.0 - min((now.main_runqueue_s - main_runqueue_s) / own_s, 1.0)


def _slowed_after(now: Pipeline, wait_s: float) -> float:
    """Shortening of a step whose process fetches less = (step now - with its batch there) x part of the fetch saved.

    Fetching leaves cold caches, memory that the kernel has taken back, and threads of other libraries, which spin. No
    more than the fetch itself takes: beyond that, something else disturbed the window.
    """
    if now.num_workers or not now.replayed_step_s or now.wait_s <= 0:
        return 0.0
    slowed_s = min(max(now.step_s - now.replayed_step_s, 0.0), now.wait_s)
    return slowed_s * max(1.0 - wait_s / now.wait_s, 0.0)


def _worker_busy_delay_after(now: Pipeline, workers: int, worker_cpu_s: float) -> float:
    """Delay by busy workers = the delay now x CPU seconds of one worker after / now, and no longer."""
    after = worker_cpu_s / max(workers, 1)
    before = now.worker_cpu_s / max(now.num_workers, 1)
    return now.worker_busy_delay_s * min(after / (before or 1.0), 1.0)


def _wait_after(now: Pipeline, workers: int, fetch_s: float) -> float:
    """Wait for a batch: without workers the wait now - (fetch now - fetch after), 0 once workers fetch.

    With workers the limits give the rate, and the wait stays as measured; once they are gone it is the fetch.
    """
    if now.num_workers > 0:
        return now.wait_s if workers else fetch_s
    return 0.0 if workers else max(now.wait_s - (now.fetch_s - fetch_s), 0.0)


def _efficiency_after(now: Pipeline, change: Change) -> float:
    """Efficiency x throughput factor, at most 1; an efficiency of 1 or more cannot gain."""
    return min(now.efficiency * change.throughput_factor, 1.0) if now.efficiency < 1.0 else now.efficiency
