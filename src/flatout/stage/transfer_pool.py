"""Transfer pool: one thread lists objects, up to ``limit.current`` threads transfer them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from flatout.stage.concurrency import ConcurrencyLimit
from flatout.stage.sources.base import ObjectInfo

QUEUED = 2_000  # objects listed ahead of the transfers: a source of any size is listed in constant memory
FULL_S = 0.01  # how often the lister checks whether a full queue has drained
UPDATE_S = 0.1  # between updates of the limit


class TransferPool:
    """Transfers what a listing yields.

    Attributes:
        stopped: the exception that ended it early; None: not stopped.
    """

    def __init__(self, transfer: Callable[[ObjectInfo], object], limit: ConcurrencyLimit) -> None:
        """Start no thread yet.

        Args:
            transfer: called for each object, in several threads at once; an exception ends everything.
            limit: how many threads.
        """
        self._transfer, self._limit = transfer, limit
        # None is its end. A thread that takes it puts it back for the others.
        self._queue: SimpleQueue[ObjectInfo | None] = SimpleQueue()
        self._ended = False  # a thread has reached the end of the listing: start no more
        self.stopped: BaseException | None = None

    def run(self, objects: Iterable[ObjectInfo], watch: Callable[[], int]) -> None:
        """Transfer all objects.

        Args:
            objects: iterated in a thread of its own, while transfers go on.
            watch: called a few times per second; returns how many were transferred.

        Raises:
            BaseException: from ``objects``, ``transfer`` or ``watch``, once all threads have ended.
        """
        lister = threading.Thread(target=self._list, args=(objects,), name="flatout-list", daemon=True)
        lister.start()
        workers: list[threading.Thread] = []
        alive: threading.Thread | None = lister
        try:
            while alive is not None:
                self._start(workers)
                self._limit.update(watch())
                alive = next((thread for thread in (*workers, lister) if thread.is_alive()), None)
                if alive is not None:
                    alive.join(UPDATE_S)
        except BaseException as error:  # Ctrl-C: what is in flight ends first
            self._stop(error)
            raise
        finally:
            for thread in (lister, *workers):
                thread.join()
        watch()
        if self.stopped is not None:
            raise self.stopped

    def _start(self, workers: list[threading.Thread]) -> None:
        """Start threads up to the limit; those above it end by themselves."""
        for place in range(self._limit.current):
            if place < len(workers) and workers[place].is_alive():
                continue
            if self._ended:  # looked at second: a thread that has ended by itself has noted so first
                return
            thread = threading.Thread(target=self._work, args=(place,), name=f"flatout-stage-{place}", daemon=True)
            thread.start()
            workers[place : place + 1] = [thread]

    def _list(self, objects: Iterable[ObjectInfo]) -> None:
        try:
            for obj in objects:
                self._queue.put(obj)
                if self._queue.qsize() >= QUEUED:
                    while self._queue.qsize() > QUEUED // 2 and self.stopped is None:
                        time.sleep(FULL_S)
                if self.stopped is not None:
                    return
            self._queue.put(None)
        except BaseException as error:
            self._stop(error)

    def _work(self, place: int) -> None:
        while place < self._limit.current:
            obj = self._queue.get()
            if obj is None or self.stopped is not None:
                self._ended = True
                self._queue.put(None)
                return
            try:
                self._transfer(obj)
            except BaseException as error:
                self._stop(error)

    def _stop(self, error: BaseException) -> None:
        self.stopped = self.stopped or error
        self._ended = True
        self._queue.put(None)
