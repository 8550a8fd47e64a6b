"""A discrete-event simulation of a DataLoader and its training: batch by batch, where means alone go wrong.

Workers fetch the batches they were given one after the other, at most ``prefetch_factor`` each ahead; the training
takes them in order, or as they come. Ready threads share the cores evenly (processor sharing): while n of them are
ready on C cores, each advances at min(1, C / n). Skewed batches, a short queue, ordered delivery, one lock for all,
epoch starts and full cores come out of that by themselves.

Source of the event scheme: next-event simulation with virtual time, as for fair queueing (Parekh and Gallager, 1993): a
thread that needs c seconds of a core ends when virtual time has advanced by c, whoever else comes or goes meanwhile.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR

Seconds = NDArray[np.float64]
BLOCK = 60  # batches that are drawn together, so that slow spells stay together
_FETCHED, _WAITED, _STEPPED, _RETURNED, _STARTED = range(5)
_NEVER = float("inf")


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Measured seconds. The arrays have one entry a batch, in order of time, and equal lengths."""

    fetch_cpu_s: Seconds
    fetch_blocked_s: Seconds
    step_cpu_s: float  # the training thread on a core, a step
    step_other_s: float = 0.0  # and not on one: the device, or anything else that it waits for
    handover_s: float = 0.0  # taking over a batch from a worker that has nothing else to do
    worker_busy_delay_s: float = 0.0  # added while its worker computes
    epoch_s: float = 0.0  # at the beginning of each epoch: sampling, building lists
    worker_start_s: float = 0.0  # until a new worker is ready


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the loader, and the cores that it runs on."""

    num_workers: int
    prefetch_factor: int = DEFAULT_PREFETCH_FACTOR
    in_order: bool = True
    persistent_workers: bool = True
    cores: float = _NEVER
    epoch_batches: int | None = None  # None: the run lies within one epoch
    one_lock: bool = False  # blocking in a fetch admits one worker at a time


@dataclass(frozen=True)
class Simulated:
    """Result of a simulation."""

    batches: int
    seconds: float
    waited_s: float  # the training, for batches
    mean_ready: float  # batches that were made and not taken, when one was asked for

    @property
    def batches_per_s(self) -> float:
        """Batches a second."""
        return self.batches / self.seconds if self.seconds > 0 else _NEVER


def simulate(costs: Costs, settings: Settings, steps: int, seed: int = 0) -> Simulated:
    """Run ``steps`` steps.

    Args:
        costs: measured; batches are drawn from them in blocks, with replacement.
        settings: to simulate.
        steps: how many, at least 1.
        seed: the same one gives the same run.

    Raises:
        ValueError: ``steps`` or ``num_workers`` is out of range, or there is no measured batch.
    """
    count = len(costs.fetch_cpu_s)
    if steps < 1 or settings.num_workers < 0 or not count:
        raise ValueError(f"cannot simulate {steps} steps, {settings.num_workers} workers, {count} measured batches")
    rows = _draw(count, steps, seed, max(settings.num_workers, 1))
    cpu, blocked = costs.fetch_cpu_s[rows], costs.fetch_blocked_s[rows]
    if settings.num_workers == 0:
        return _without_workers(costs, settings, cpu, blocked)
    return _Run(costs, settings, cpu.tolist(), blocked.tolist()).to_end()


def least_seconds(costs: Costs, settings: Settings, steps: int, seed: int = 0) -> float:
    """Lower bound of the simulated seconds: max(fetching / workers, steps x (hand-over + step)).

    Args:
        costs: as for ``simulate``.
        settings: at least one worker.
        steps: how many.
        seed: draws the same batches.
    """
    rows = _draw(len(costs.fetch_cpu_s), steps, seed, settings.num_workers)
    fetching_s = float(costs.fetch_cpu_s[rows].sum() + costs.fetch_blocked_s[rows].sum())
    step_s = costs.handover_s + costs.step_cpu_s + costs.step_other_s
    return max(fetching_s / settings.num_workers, steps * step_s)


def _draw(count: int, steps: int, seed: int, workers: int) -> NDArray[np.int64]:
    """Rows of blocks of consecutive batches, each of which stays with the worker whose turn it was."""
    turn = workers if count >= workers else 1
    block = min(max(BLOCK // turn, 1), count // turn) * turn
    starts = turn * np.random.default_rng(seed).integers(0, (count - block) // turn + 1, -(-steps // block))
    rows: NDArray[np.int64] = (starts[:, None] + np.arange(block)).ravel()[:steps]
    return rows


def _without_workers(costs: Costs, settings: Settings, cpu: Seconds, blocked: Seconds) -> Simulated:
    """Fetching and computing take turns in one thread."""
    speed = min(1.0, settings.cores)
    waited = float(cpu.sum()) / speed + float(blocked.sum())
    epochs = len(cpu) / settings.epoch_batches if settings.epoch_batches else 0.0
    step_s = costs.step_cpu_s / speed + costs.step_other_s
    return Simulated(len(cpu), waited + step_s * len(cpu) + epochs * costs.epoch_s, waited, 0.0)


class _Run:
    """The state of one simulated run."""

    def __init__(self, costs: Costs, settings: Settings, cpu: list[float], blocked: list[float]) -> None:
        self.costs, self.settings, self.cpu, self.blocked = costs, settings, cpu, blocked
        self.in_order, self.one_lock = settings.in_order, settings.one_lock
        self.now = self.virtual = self.lock_free = 0.0
        # Threads that want a core, and threads that wait for a time: (virtual or real end, order, kind, worker).
        self.on_core: list[tuple[float, int, int, int]] = []
        self.timed: list[tuple[float, int, int, int]] = []
        self.order = 0
        self.given: list[deque[int]] = [deque() for _ in range(settings.num_workers)]
        self.fetching: list[int] = [-1] * settings.num_workers
        self.computing = [False] * settings.num_workers
        self.maker: dict[int, int] = {}  # made and not taken: batch -> worker
        self.taken = self.next = self.epoch_end = 0
        self.asked_at = 0.0
        self.waiting = False
        self.waited = self.ready_seen = 0.0

    def to_end(self) -> Simulated:
        """Process events until every batch was trained with."""
        self._begin_epoch(first=True)
        # This loop takes most of a diagnosis of a starved run: names that it needs at each event are local.
        on_core, timed, cores, total = self.on_core, self.timed, self.settings.cores, len(self.cpu)
        step_other_s = self.costs.step_other_s
        while self.taken < total or not self.waiting:
            speed = 1.0 if len(on_core) <= cores else cores / len(on_core)
            core_end = self.now + (on_core[0][0] - self.virtual) / speed if on_core else _NEVER
            if not timed or core_end <= timed[0][0]:
                self.now = core_end
                self.virtual, _, kind, worker = heappop(on_core)
            else:
                end, _, kind, worker = heappop(timed)
                self.virtual += (end - self.now) * speed
                self.now = end
            if kind == _STEPPED and step_other_s > 0:
                self._wait(step_other_s, _RETURNED, worker)
            elif kind == _FETCHED:
                self._fetched(worker)
            elif kind == _WAITED:
                self.computing[worker] = True
                self._compute(self.cpu[self.fetching[worker]], _FETCHED, worker)
            elif kind == _STARTED:
                self._fetch(worker)
            elif self.taken == self.epoch_end and self.taken < total:
                self._begin_epoch(first=False)
            else:
                self._ask()
        return Simulated(total, self.now, self.waited, self.ready_seen / total)

    def _fetched(self, worker: int) -> None:
        """A batch is made: its worker begins the next one, and the training may have waited for it."""
        self.maker[self.fetching[worker]] = worker
        self.fetching[worker], self.computing[worker] = -1, False
        self._fetch(worker)
        if self.waiting:
            self._take()

    def _begin_epoch(self, first: bool) -> None:
        """Hand out the first batches; new workers are ready later."""
        settings = self.settings
        self.now += 0.0 if first else self.costs.epoch_s
        self.epoch_end = min(self.next + (settings.epoch_batches or len(self.cpu)), len(self.cpu))
        new = not first and not settings.persistent_workers
        for number in range(min(settings.num_workers * settings.prefetch_factor, self.epoch_end - self.next)):
            self.given[number % settings.num_workers].append(self.next)
            self.next += 1
        for worker in range(settings.num_workers):
            if new:
                self._wait(self.costs.worker_start_s, _STARTED, worker)
            else:
                self._fetch(worker)
        self._ask()

    def _fetch(self, worker: int) -> None:
        """Begin the worker's next batch, if it has one and is free."""
        if self.fetching[worker] >= 0 or not self.given[worker]:
            return
        batch = self.fetching[worker] = self.given[worker].popleft()
        blocked = self.blocked[batch]
        if self.one_lock and blocked > 0:
            self.lock_free = max(self.lock_free, self.now) + blocked
            blocked = self.lock_free - self.now
        if blocked > 0:
            self._wait(blocked, _WAITED, worker)
        else:
            self.computing[worker] = True
            self._compute(self.cpu[batch], _FETCHED, worker)

    def _ask(self) -> None:
        """The training wants its next batch."""
        self.waiting, self.asked_at = True, self.now
        if self.taken < len(self.cpu):
            self.ready_seen += len(self.maker)
            self._take()

    def _take(self) -> None:
        """Take the next batch if it is ready, and compute."""
        batch = self.taken if self.in_order else next(iter(self.maker), -1)
        worker = self.maker.pop(batch, None)
        if worker is None:
            return
        self.waiting = False
        self.waited += self.now - self.asked_at
        self.taken += 1
        # In order the next worker in turn is given the next batch, else the one that is done.
        if self.next < self.epoch_end:
            self.given[worker].append(self.next)
            self.next += 1
            self._fetch(worker)
        handover_s = self.costs.handover_s + (self.costs.worker_busy_delay_s if self.computing[worker] else 0.0)
        self.waited += handover_s
        self._compute(handover_s + self.costs.step_cpu_s, _STEPPED, -1)

    def _compute(self, seconds: float, kind: int, worker: int) -> None:
        self.order += 1
        heappush(self.on_core, (self.virtual + seconds, self.order, kind, worker))

    def _wait(self, seconds: float, kind: int, worker: int) -> None:
        self.order += 1
        heappush(self.timed, (self.now + seconds, self.order, kind, worker))
