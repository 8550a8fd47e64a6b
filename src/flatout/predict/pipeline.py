"""The rate model: samples/s from the mean costs of one batch, and what a change to them gives.

Source: operational bounds of closed queueing systems (Denning and Buzen, 1978). A pipeline of workers and a training
step is limited by whichever of these is least; Little's law gives the batches in flight.

- workers: W / (t_cpu + t_blocked), each worker fetching one batch at a time
- cores: C / (CPU seconds of a batch in its worker + CPU seconds of a step in the training process)
- serial: the rate at which one shared lock lets batches pass
- training: 1 / (step without its wait + hand-over of a batch)

A step that waits for a core waits longer the more the workers compute: that part of it is proportional to their CPU
seconds, as under fair scheduling. A worker's thread that hands a batch out waits for a core and for the interpreter's
lock, which the fetching thread has: that part is proportional to how busy a worker is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from flatout.measure.thresholds import MATERIAL_SHARE, NOISE_SHARE, SATURATED_RUNQUEUE

EVEN = float("inf")  # a supply_factor: nothing is lost to uneven batches any more
_LEAST_S = 1e-9  # a cost that a change removes completely still has to divide


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a remedy does to the inputs of the model. The defaults change nothing."""

    num_workers: int | None = None
    fetch_cpu_factor: float = 1.0  # on the CPU time of a fetch
    fetch_blocked_factor: float = 1.0  # on its blocked time
    helper_cpu_factor: float | None = None  # on the CPU time of the worker's other threads; None: as that of the fetch
    fetch_cpu_added_s: float = 0.0  # moved into the workers, a batch
    worker_threads_removed: bool = False  # only the fetch thread computes
    busy_removed_s: float = 0.0  # a batch, from the part of the step that overlaps with loading
    busy_cpu_removed_s: float = 0.0  # the CPU time in it
    gap_removed_s: float = 0.0  # a batch, from what does not overlap with loading
    supply_factor: float = 1.0  # on the workers' rate: what another queue makes of the same fetches
    handover_factor: float = 1.0  # on the time of taking over a batch
    lock_removed: bool = False  # workers no longer wait for each other

    def and_then(self, other: Change) -> Change:
        """Both changes: factors multiply, what is removed adds up, and the later number of workers holds."""
        helpers = [factor for factor in (self.helper_cpu_factor, other.helper_cpu_factor) if factor is not None]
        return Change(
            num_workers=self.num_workers if other.num_workers is None else other.num_workers,
            fetch_cpu_factor=self.fetch_cpu_factor * other.fetch_cpu_factor,
            fetch_blocked_factor=self.fetch_blocked_factor * other.fetch_blocked_factor,
            helper_cpu_factor=math.prod(helpers) if helpers else None,
            fetch_cpu_added_s=self.fetch_cpu_added_s + other.fetch_cpu_added_s,
            worker_threads_removed=self.worker_threads_removed or other.worker_threads_removed,
            busy_removed_s=self.busy_removed_s + other.busy_removed_s,
            busy_cpu_removed_s=self.busy_cpu_removed_s + other.busy_cpu_removed_s,
            gap_removed_s=self.gap_removed_s + other.gap_removed_s,
            supply_factor=self.supply_factor * other.supply_factor,
            handover_factor=self.handover_factor * other.handover_factor,
            lock_removed=self.lock_removed or other.lock_removed,
        )


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Mean costs of one batch, in seconds unless said otherwise."""

    num_workers: int
    samples: float  # in a batch
    total_s: float  # wall time, everything included
    wait_s: float  # the training waiting for the batch; with 0 workers, fetching it
    gap_s: float = 0.0  # validation, checkpoints, epoch boundaries: workers' queues fill only to their depth
    handover_s: float = 0.0  # deserializing, in the training process
    answer_s: float = 0.0  # the part of it that waits until a worker, busy with its next fetch, hands the batch out
    fetch_cpu_s: float = 0.0  # fetch thread on a core
    fetch_blocked_s: float = 0.0
    core_share: float = 1.0  # of a core that a ready fetch thread gets beside other processes
    runqueue_part: float = 0.0  # run-queue / (on-CPU + run-queue)
    worker_cpu_s: float = 0.0  # all threads of the worker, serializing included
    main_cpu_s: float = 0.0
    queue_s: float = 0.0  # the training thread, ready, waiting for a core that the workers have
    cores: float | None = None  # usable by this run, other processes' use taken off
    locked: bool = False  # most of the fetch waits for one lock
    efficiency: float = 1.0  # measured supply / modelled supply; lost to uneven batches and hand-over
    serial_bps: float | None = None  # batches/s that pass the lock

    @property
    def busy_s(self) -> float:
        """The part of a step that is not waiting and overlaps with loading."""
        return max(self.total_s - self.wait_s - self.gap_s, _LEAST_S)

    @property
    def fetch_s(self) -> float:
        """One batch in one worker; waiting for a core counts only as far as other processes cause it."""
        return max(self.fetch_cpu_s / self.core_share + self.fetch_blocked_s, _LEAST_S)

    @property
    def starved(self) -> bool:
        """Whether the training waits for batches beyond their hand-over."""
        return (self.wait_s - self.handover_s) > NOISE_SHARE * self.total_s

    def limits(self) -> dict[str, float]:
        """Batches/s that each limit alone would allow while training runs; unknown limits are left out."""
        limits = {"training": 1.0 / (self.busy_s + self.handover_s)}
        if self.num_workers == 0:
            return {"training": 1.0 / max(self.busy_s + self.wait_s, _LEAST_S)}
        limits["workers"] = self.efficiency * self.num_workers / self.fetch_s
        cpu_s = self.worker_cpu_s + self.main_cpu_s
        if self.cores is not None and cpu_s > 0:
            limits["cores"] = self.cores / cpu_s * min(self.efficiency, 1.0)
        if self.serial_bps is not None:
            limits["serial"] = self.serial_bps
        return limits

    def rate_sps(self) -> float:
        """Throughput in samples/s over wall time."""
        step_s = 1.0 / min(self.limits().values())
        return self.samples / (step_s + self.gap_s)

    def calibrated(self) -> Pipeline:
        """Fit what formulas cannot know, so that the model reproduces the measured rate.

        A starved run measures the supply itself. Where run-queue delay shows full cores, the cores' limit is the
        measured rate; otherwise the difference between model and measurement is the workers' efficiency.
        """
        if self.num_workers == 0:
            return self
        measured_bps = 1.0 / max(self.total_s - self.gap_s, _LEAST_S)
        cpu_s = self.worker_cpu_s + self.main_cpu_s
        obtained = measured_bps * cpu_s  # cores' worth of work that was demonstrably done
        cores = self.cores
        if cores is not None:
            cores = max(cores, obtained)
            # A fetch that is mostly blocked leaves its core idle, however long it queued for its few CPU moments.
            queued_s = self.runqueue_part * self.fetch_cpu_s / max(1.0 - self.runqueue_part, _LEAST_S)
            crowded = queued_s >= MATERIAL_SHARE * (self.fetch_s + queued_s)
            if self.starved and crowded and self.runqueue_part >= SATURATED_RUNQUEUE:
                cores = obtained
        fitted = replace(self, cores=cores, serial_bps=measured_bps if self.locked and self.starved else None)
        supply = min(rate for name, rate in fitted.limits().items() if name != "training")
        reached = measured_bps / supply
        # A training that does not wait shows only that the supply is at least the measured rate. A short wait beside
        # ample supply is hand-over and unevenness: it does not measure the supply either.
        ample = supply > fitted.limits()["training"] and self.wait_s < MATERIAL_SHARE * self.total_s
        return replace(fitted, efficiency=reached if self.starved and not ample else max(reached, 1.0))

    def changed(self, change: Change) -> Pipeline:
        """The pipeline after a change; a calibration stays in force."""
        workers = self.num_workers if change.num_workers is None else change.num_workers
        cpu_s = self.fetch_cpu_s * change.fetch_cpu_factor + change.fetch_cpu_added_s
        blocked_s = self.fetch_blocked_s * change.fetch_blocked_factor
        helper_s = 0.0 if change.worker_threads_removed else self.worker_cpu_s - self.fetch_cpu_s
        helper_s *= change.fetch_cpu_factor if change.helper_cpu_factor is None else change.helper_cpu_factor
        worker_cpu_s = cpu_s + helper_s
        queue_s = self.queue_s * min(worker_cpu_s / self.worker_cpu_s, 1.0) if self.worker_cpu_s > 0 else 0.0
        busier = worker_cpu_s / max(workers, 1) / (self.worker_cpu_s / max(self.num_workers, 1) or 1.0)
        answer_s = self.answer_s * min(busier, 1.0)
        active_s = self.busy_s + self.handover_s
        quicker = 1.0 - min((self.queue_s - queue_s) / active_s, 1.0)
        busy_s = max(self.busy_s - change.busy_removed_s, _LEAST_S) * quicker
        gap_s = max(self.gap_s - change.gap_removed_s, 0.0)
        wait_s = self.wait_s
        if self.num_workers == 0:
            saved_s = self.fetch_s - (cpu_s / self.core_share + blocked_s)
            wait_s = 0.0 if workers else max(self.wait_s - saved_s, 0.0)
        efficiency = self.efficiency
        if efficiency < 1.0:
            efficiency = min(efficiency * change.supply_factor, 1.0)
        return replace(
            self,
            num_workers=workers,
            total_s=busy_s + wait_s + gap_s,
            wait_s=wait_s,
            gap_s=gap_s,
            fetch_cpu_s=cpu_s,
            fetch_blocked_s=blocked_s,
            worker_cpu_s=worker_cpu_s,
            main_cpu_s=max(self.main_cpu_s - change.busy_cpu_removed_s, 0.0),
            queue_s=queue_s,
            efficiency=efficiency,
            handover_s=((self.handover_s - self.answer_s) * quicker + answer_s) * change.handover_factor,
            answer_s=answer_s * change.handover_factor,
            locked=self.locked and not change.lock_removed,
            serial_bps=None if change.lock_removed else self.serial_bps,
        )
