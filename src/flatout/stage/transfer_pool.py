"""Threads that copy: one lists, as many as the width says take what was listed, without a lock for each object."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from flatout.stage.concurrency import ConcurrencyLimit
from flatout.stage.sources.base import ObjectInfo

QUEUED = 2_000  # entries that were listed and not taken: a set of any size is listed in constant memory
FULL_S = 0.01
EMPTY_S = 0.05
PARKED_S = 0.1
LOOK_S = 0.1


class TransferPool:
    """Copies what a listing gives."""

    def __init__(self, bring: Callable[[ObjectInfo], object], width: ConcurrencyLimit) -> None:
        """Take what to do.

        Args:
            bring: called for each entry, in several threads at once; what it raises ends everything.
            width: how many threads.
        """
        self._bring, self._width = bring, width
        self._listed: deque[ObjectInfo] = deque()
        self._all_listed = False
        self._news = threading.Event()
        self.stopped: BaseException | None = None

    def run(self, entries: Iterable[ObjectInfo], watch: Callable[[], int]) -> None:
        """Copy all entries.

        Args:
            entries: is gone through in a thread of its own, while copying goes on.
            watch: called some times a second; gives how many were copied.

        Raises:
            BaseException: what ``entries``, ``bring`` or ``watch`` raised, after all threads have ended.
        """
        lister = threading.Thread(target=self._list, args=(entries,), name="flatout-list", daemon=True)
        threads = [lister]
        lister.start()
        try:
            # One thread at least is started, however short the listing is.
            while any(thread.is_alive() for thread in threads) or (len(threads) == 1 and self.stopped is None):
                # Threads beyond the width would only wait.
                while len(threads) <= self._width.now and self.stopped is None:
                    number = len(threads) - 1
                    thread = threading.Thread(
                        target=self._copy, args=(number,), name=f"flatout-stage-{number}", daemon=True
                    )
                    thread.start()
                    threads.append(thread)
                self._width.judge(watch())
                next((thread for thread in threads if thread.is_alive()), lister).join(LOOK_S)
        except BaseException as stop:  # Ctrl-C: what is in flight ends first
            self.stopped = stop
            raise
        finally:
            for thread in threads:
                thread.join()
        watch()
        if self.stopped is not None:
            raise self.stopped

    def _list(self, entries: Iterable[ObjectInfo]) -> None:
        try:
            for entry in entries:
                self._listed.append(entry)
                if not self._news.is_set():
                    self._news.set()
                if len(self._listed) >= QUEUED:
                    while len(self._listed) > QUEUED // 2 and self.stopped is None:
                        time.sleep(FULL_S)
                if self.stopped is not None:
                    return
            self._all_listed = True
            self._news.set()
        except BaseException as error:
            self.stopped = self.stopped or error

    def _copy(self, number: int) -> None:
        while self.stopped is None:
            all_listed = self._all_listed  # looked at first: nothing is added afterwards
            if number >= self._width.now:
                if all_listed and not self._listed:
                    return
                time.sleep(PARKED_S)
                continue
            try:
                entry = self._listed.popleft()
            except IndexError:
                if all_listed:
                    return
                self._news.clear()
                if not self._listed and not self._all_listed:
                    self._news.wait(EMPTY_S)
                continue
            try:
                self._bring(entry)
            except BaseException as error:
                self.stopped = self.stopped or error
