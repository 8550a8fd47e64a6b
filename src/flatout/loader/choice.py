"""Threads or processes, and how many: from the cores that may be used and a short measurement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.loader.making import Maker
from flatout.loader.threads import single_threaded_pool
from flatout.machine.cores import read_cores

TRY_IMAGES = 48
TRY_S = 1.0
# Two threads of a decoder that releases the interpreter lock give 1.6 to 1.9 times one; of one that holds it, 1.0.
EFFICIENT = 0.65


@dataclass(frozen=True)
class Choice:
    """How batches are made, and why."""

    backend: str  # threads or processes
    workers: int
    reason: str


def choose(maker: Maker, places: Sequence[int], backend: str = "auto", workers: int | str = "auto") -> Choice:
    """Choose what is left to ``auto``.

    ``workers``: one a usable core (affinity and cgroup quota counted). ``backend``: one thread and two threads
    decode some of the data for at most a second each; threads are chosen when the second is worth at least 30 %.

    Args:
        maker: makes the images.
        places: places in the data that the measurement may read.
        backend: auto, threads or processes.
        workers: a number, or auto.
    """
    cores = usable_cores()
    count = cores if workers == "auto" else int(workers)
    how_many = f"{count} for {cores} usable core(s)" if workers == "auto" else f"{count} as asked"
    if backend != "auto":
        return Choice(backend, count, f"{backend} as asked, {how_many}")
    if count == 1 or not places:
        return Choice("threads", count, f"threads, {how_many}: with one worker a process gains nothing")
    one = _rate(maker, places[:TRY_IMAGES], 1)
    two = _rate(maker, places[:TRY_IMAGES], 2)
    gain = two / one
    chosen = "threads" if gain / 2 >= EFFICIENT or cores == 1 else "processes"
    return Choice(chosen, count, f"{chosen}, {how_many}: a second thread gave {gain:.2f}x of {one:.0f} images/s")


def usable_cores() -> int:
    """Whole cores that this process may use: affinity and cgroup quota counted; at least 1."""
    usable = read_cores(Path("/"))[0].usable
    return max(1, int(usable or 1))


def _rate(maker: Maker, places: Sequence[int], threads: int) -> float:
    """Images a second."""
    batch = maker.empty(len(places))
    until = time.perf_counter() + TRY_S

    def work(offset: int) -> int:
        made = 0
        for slot in range(offset, len(places), threads):
            if time.perf_counter() > until:
                break
            maker.fill(batch, [slot], [places[slot]], epoch=0)
            made += 1
        return made

    with single_threaded_pool(threads) as pool:
        begin = time.perf_counter()
        made = sum(pool.map(work, range(threads)))
    return made / max(time.perf_counter() - begin, 1e-9)
