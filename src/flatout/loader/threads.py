"""Batches made by threads of this process: ordered, a bounded number in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from flatout.loader.contract import Batch
from flatout.loader.making import Bad, Maker, Spent

PARTS_PER_WORKER = 4  # of a batch: the last part is waited for, so parts are small; each costs a hand-over


class ThreadPool:
    """Makes the batches of a plan."""

    def __init__(self, maker: Maker, workers: int, in_flight: int) -> None:
        """Start ``workers`` threads that keep at most ``in_flight`` batches begun or ready."""
        self._maker, self._workers, self._in_flight = maker, workers, in_flight
        self._pool = ThreadPoolExecutor(workers, "flatout-loader")

    def batches(
        self, plan: Sequence[Sequence[int]], epoch: int
    ) -> Generator[tuple[Batch, bool, Spent, list[Bad]], None, None]:
        """Each batch with whether it was ready when asked for, what it took, and the images left out of it."""
        waiting: deque[tuple[Batch, list[Future[tuple[Spent, list[Bad]]]]]] = deque()
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
                # The next one is begun before the consumer works on this one.
                if (places := next(coming, None)) is not None:
                    waiting.append(self._begin(places, epoch))
                spent = Spent(*(sum(getattr(s, name) for s, _ in done) for name in ("read_ns", "decode_ns", "images")))
                yield batch, ready, spent, [image for _, bad in done for image in bad]
        finally:
            for _, parts in waiting:
                for part in parts:
                    part.cancel()

    def _begin(self, places: Sequence[int], epoch: int) -> tuple[Batch, list[Future[tuple[Spent, list[Bad]]]]]:
        batch = self._maker.empty(len(places))
        size = max(1, len(places) // (PARTS_PER_WORKER * self._workers))
        slots = range(len(places))
        return batch, [
            self._pool.submit(self._maker.fill, batch, slots[at : at + size], places[at : at + size], epoch)
            for at in range(0, len(places), size)
        ]

    def close(self) -> None:
        """End the threads; parts that have begun are finished first."""
        self._pool.shutdown(wait=True, cancel_futures=True)
