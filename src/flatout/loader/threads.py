"""Batches built by threads of this process: in order, with a bounded number in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier

import torch

from flatout.loader.batch_builder import Bad, BatchBuilder, CpuTime
from flatout.loader.interfaces import Batch

PARTS_PER_WORKER = 4  # of a batch: the batch waits for its last part, so parts are small; each costs a hand-over


def single_threaded_pool(workers: int) -> ThreadPoolExecutor:
    """A started thread pool in which torch runs single-threaded; torch's thread count elsewhere is unchanged.

    Otherwise every copy of a crop would wake a team of OpenMP threads for each of ours: 0.6 ms an image on 2 cores.
    torch has one thread count for all threads and each thread reads it once, so it is lowered while they do.
    """
    before = torch.get_num_threads()
    started = Barrier(workers + 1)

    def look() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # reads the count
        started.wait()

    pool = ThreadPoolExecutor(workers, "flatout-loader", initializer=look)
    for _ in range(workers):
        pool.submit(int)
    started.wait()
    torch.set_num_threads(before)
    return pool


class ThreadPool:
    """Makes the batches of a plan."""

    def __init__(self, builder: BatchBuilder, workers: int, in_flight: int) -> None:
        """Start ``workers`` threads that keep at most ``in_flight`` batches begun or ready."""
        self._builder, self._workers, self._in_flight = builder, workers, in_flight
        self._pool = single_threaded_pool(workers)

    def batches(
        self, plan: Sequence[Sequence[int]], epoch: int
    ) -> Generator[tuple[Batch, bool, CpuTime, list[Bad]], None, None]:
        """Each batch, True if it was ready when requested, its CPU time, and the images left out."""
        waiting: deque[tuple[Batch, list[Future[tuple[CpuTime, list[Bad]]]]]] = deque()
        coming = iter(plan)
        try:
            while True:
                while len(waiting) < self._in_flight and (places := next(coming, None)) is not None:
                    waiting.append(self._begin(places, epoch))
                if not waiting:
                    return
                batch, parts = waiting[0]
                ready = all(part.done() for part in parts)
                done = [part.result() for part in parts]
                waiting.popleft()
                # The next batch is begun before the consumer works on this one.
                if (places := next(coming, None)) is not None:
                    waiting.append(self._begin(places, epoch))
                spent = CpuTime(
                    *(sum(getattr(s, name) for s, _ in done) for name in ("read_ns", "decode_ns", "images"))
                )
                yield batch, ready, spent, [image for _, bad in done for image in bad]
        finally:
            for _, parts in waiting:
                for part in parts:
                    part.cancel()

    def _begin(self, places: Sequence[int], epoch: int) -> tuple[Batch, list[Future[tuple[CpuTime, list[Bad]]]]]:
        batch = self._builder.empty(len(places))
        size = max(1, len(places) // (PARTS_PER_WORKER * self._workers))
        slots = range(len(places))
        return batch, [
            self._pool.submit(self._builder.fill, batch, slots[at : at + size], places[at : at + size], epoch)
            for at in range(0, len(places), size)
        ]

    def close(self) -> None:
        """End the threads; parts that have begun are finished first."""
        self._pool.shutdown(wait=True, cancel_futures=True)
