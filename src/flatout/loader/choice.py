"""Chooses threads or processes, and their number, from the usable cores and a short measurement."""

from __future__ import annotations

import itertools
import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import UsageError
from flatout.loader.batch_builder import BatchBuilder
from flatout.loader.threads import single_threaded_pool
from flatout.machine.cores import read_cores
from flatout.units import counted, duration

TRY_IMAGES = 48
TRY_S = 1.0
TURNS, TURN_S = 3, 0.12  # one thread and two are measured alternately
# A second thread at most doubles the rate and never halves it: other figures come from a busy machine.
PLAUSIBLE = (0.5, 2.2)
# Two threads of a decoder that releases the interpreter lock reach 1.6 to 1.9 times one; if it holds it, 1.0.
EFFICIENT = 0.65
MOSTLY_WAITING = 0.7  # share of a thread's time that it is runnable, if it waits for bytes; decoding alone: over 0.9
MOST_WORKERS = 64


@dataclass(frozen=True)
class Choice:
    """The chosen way to build batches, and the reason."""

    backend: str  # threads or processes
    workers: int
    reason: str


def choose(builder: BatchBuilder, places: Sequence[int], backend: str = "auto", workers: int | str = "auto") -> Choice:
    """Choose the ``auto`` settings by decoding some of the data with one thread and two, for two seconds at most.

    ``backend``: threads if a second thread gains at least 30%, or if the machine is too busy to measure;
    always threads if a GPU decodes.
    ``workers``: one per usable core (affinity and cgroup quota counted); if images wait for storage, more by the ratio
    of an image's total time to its computing time, which keeps the cores busy.

    Args:
        builder: decodes the images.
        places: indices into the data that the measurement may read.
        backend: auto, threads or processes.
        workers: a number, or auto.

    Raises:
        UsageError: processes are requested and cannot be used.
    """
    cores, asked = usable_cores(), f"{backend} as asked"
    only = "pixels are made on the GPU" if builder.device != "cpu" else builder.source.only_threads
    if only is not None:
        if backend == "processes":
            raise UsageError(f"images.backend: processes cannot be used here, since {only}: set it to threads")
        backend, asked = "threads", f"threads, since {only}"
    if workers != "auto" and backend != "auto":
        return Choice(backend, int(workers), f"{asked}, {workers} as asked")
    if workers == 1 and backend == "auto":
        return Choice("threads", 1, "threads, 1 as asked: with one worker a process gains nothing")
    if not places:
        count = cores if workers == "auto" else int(workers)
        return Choice("threads" if backend == "auto" else backend, count, f"{count}, there is nothing to measure with")
    one, computing = _rate(builder, places[:TRY_IMAGES])
    if workers != "auto":
        count, why = int(workers), f"{workers} as asked"
    elif computing < MOSTLY_WAITING:
        count = min(MOST_WORKERS, math.ceil(cores / computing))
        why = (
            f"{count} for {counted(cores, 'usable core')}: an image takes {duration(1 / one)}, "
            f"{duration((1 - computing) / one)} of it waiting for its bytes"
        )
    else:
        count, why = cores, f"{cores} for {counted(cores, 'usable core')}"
    if backend != "auto":
        return Choice(backend, count, f"{asked}, {why}")
    if count == 1:
        return Choice("threads", 1, f"threads, {why}: with one worker a process gains nothing")
    gain = second_thread_gain(lambda threads: _steady_rate(builder, places[:TRY_IMAGES], threads))
    if gain is None:
        return Choice("threads", count, f"threads, {why}: a second thread could not be measured: the machine is busy")
    chosen = "threads" if gain / 2 >= EFFICIENT or cores == 1 else "processes"
    so = "so threads suffice" if gain / 2 >= EFFICIENT else "so processes are used, which do not hold each other up"
    if chosen == "threads" and gain / 2 < EFFICIENT:
        so = "and processes gain nothing on one core"
    return Choice(chosen, count, f"{chosen}, {why}: a second thread gave {gain:.2f}x of {one:.0f} images/s, {so}")


def usable_cores() -> int:
    """Whole cores that this process may use: affinity and cgroup quota counted; at least 1."""
    usable = read_cores(Path("/"))[0].usable
    return max(1, int(usable or 1))


def second_thread_gain(rate: Callable[[int], float]) -> float | None:
    """Throughput of two threads relative to one; None if no plausible figure could be measured.

    Each turn measures one and two in succession, so that both see the same load; the result is the turns' median.

    Args:
        rate: images a second with a given number of threads.
    """
    for _ in range(2):
        gain = statistics.median([(1 / rate(1)) * rate(2) for _ in range(TURNS)])
        if PLAUSIBLE[0] <= gain <= PLAUSIBLE[1]:
            return gain
    return None


def _rate(builder: BatchBuilder, places: Sequence[int]) -> tuple[float, float]:
    """Images a second of one thread that reads each once, and the share of its time that it was runnable."""
    batch = builder.empty(len(places))

    def work() -> tuple[int, float, int]:
        began, runnable, made = time.perf_counter(), _runnable_ns(), 0
        for slot, place in enumerate(places):
            builder.fill(batch, [slot], [place], epoch=0)
            made += 1
            if time.perf_counter() > began + TRY_S:
                break
        return made, max(time.perf_counter() - began, 1e-9), _runnable_ns() - runnable

    with single_threaded_pool(1) as pool:
        made, wall_s, runnable_ns = pool.submit(work).result()
    return made / wall_s, runnable_ns / 1e9 / wall_s


def _steady_rate(builder: BatchBuilder, places: Sequence[int], threads: int) -> float:
    """Combined images a second of several threads, each repeating its share of the images for a moment."""
    batch = builder.empty(threads)

    def work(slot: int) -> float:
        began, made = time.perf_counter(), 0
        for place in itertools.cycle(places[slot::threads] or places):
            builder.fill(batch, [slot], [place], epoch=0)
            made += 1
            if time.perf_counter() > began + TURN_S:
                break
        return made / max(time.perf_counter() - began, 1e-9)

    with single_threaded_pool(threads) as pool:
        return sum(pool.map(work, range(threads)))


def _runnable_ns() -> int:
    """Time in which this thread had a core or waited for one; only the former if the kernel does not report waits."""
    try:
        on_core, queued = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[:2]
        return int(on_core) + int(queued)
    except (OSError, ValueError):
        return time.thread_time_ns()
