"""How many objects to copy at once: climb while the rate grows, stay at the knee, back off when asked to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

START = 64  # 1.1 to 1.25 times the rate of 32 at 20 ms; at 0 ms 16 to 64 were not told apart (measurements/stage.md)
LOWEST = 1
GROWTH = 1.05  # a doubling that gives less than this is not worth its sockets
INTERVAL_S = 0.5
FIRST_INTERVAL_S = 0.25  # connections are made in it: it is not judged
LEAST_DONE = 4  # completions for each one in flight that an interval must hold to be judged
HOLD_AFTER_BUSY_S = 5.0
STEADY = 60  # intervals after which one step up is tried again


class ConcurrencyLimit:
    """How many are worked on at once, by the measured rate.

    Doubles while an interval's rate is at least ``GROWTH`` times that of the last width, then goes back to the
    width before and stays there; a store that says "slow down" halves it and keeps it for a while. Every 60
    intervals a step up is tried again, since networks change.
    """

    def __init__(self, most: int, fixed: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """Start.

        Args:
            most: never more than so many at once.
            fixed: keep ``most`` all the time.
            clock: seconds, for tests.
        """
        self.most = most
        self.now = most if fixed else min(START, most)
        self.highest = self.now
        self._fixed = fixed
        self._clock = clock
        self._done_before = 0
        self._began = clock()
        self._first = True
        self._held_until = 0.0
        self._best_rate = 0.0
        self._climbing = not fixed
        self._steady = 0
        self._changing = threading.Lock()

    def busy(self) -> None:
        """The store asked to go slower."""
        with self._changing:
            now = self._clock()
            if now < self._held_until or self._fixed:
                return
            self.now = max(LOWEST, self.now // 2)
            self._climbing = False
            self._held_until = now + HOLD_AFTER_BUSY_S
            self._began = 0.0  # what was done until now says nothing of this width

    def judge(self, done: int) -> None:
        """Look at the rate, some times a second.

        Args:
            done: objects that were completed since the beginning.
        """
        if self._fixed:
            return
        with self._changing:
            now = self._clock()
            if not self._began or now < self._held_until:
                self._began, self._done_before = now, done
                return
            took, count = now - self._began, done - self._done_before
            if self._first:
                if took >= FIRST_INTERVAL_S and count:
                    self._first, self._began, self._done_before = False, now, done
                return
            if took < INTERVAL_S or count < LEAST_DONE * self.now:
                return
            self._step(count / took)
            self.highest = max(self.highest, self.now)
            self._began, self._done_before = now, done

    def _step(self, rate: float) -> None:
        if self._climbing:
            if rate >= GROWTH * self._best_rate and self.now < self.most:
                self._best_rate = rate
                self.now = min(2 * self.now, self.most)
            else:
                if rate < GROWTH * self._best_rate:
                    self.now = max(LOWEST, self.now // 2)
                self._climbing, self._steady = False, 0
        else:
            self._steady += 1
            if self._steady >= STEADY:
                self._best_rate, self._climbing = rate, True
                self.now = min(2 * self.now, self.most)
