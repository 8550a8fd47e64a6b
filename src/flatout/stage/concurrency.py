"""How many objects to copy at once: climb while the rate grows, stay at the knee, back off when asked to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

START = 16
LOWEST = 1
GROWTH = 1.1  # a doubling that gives less than this is not worth its sockets
INTERVAL_S = 1.0
LEAST_DONE = 4  # completions for each one in flight that an interval must hold to be judged
HOLD_AFTER_BUSY_S = 5.0


class Permits:
    """Permission to work on one object; how many are out at once follows the measured rate.

    Doubles while an interval's rate is at least ``GROWTH`` times that of the last width, then goes back to the
    width before and stays there; a store that says "slow down" halves it and keeps it for a while. Every 30
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
        self.width = most if fixed else min(START, most)
        self.highest_used = self.width
        self._fixed = fixed
        self._clock = clock
        self._out = 0
        self._done = 0
        self._began = clock()
        self._held_until = 0.0
        self._best_rate = 0.0
        self._climbing = not fixed
        self._steady = 0
        self._free = threading.Condition()

    def take(self) -> None:
        """Wait for permission."""
        with self._free:
            while self._out >= self.width:
                self._free.wait()
            self._out += 1

    def give(self, done: bool) -> None:
        """Give permission back; ``done``: an object was completed."""
        with self._free:
            self._out -= 1
            self._done += done
            self._judge()
            # No more than can go on: waking all that wait costs more than the work of one.
            self._free.notify(max(self.width - self._out, 0))

    def busy(self) -> None:
        """The store asked to go slower."""
        with self._free:
            now = self._clock()
            if now < self._held_until or self._fixed:
                return
            self.width = max(LOWEST, self.width // 2)
            self._climbing = False
            self._held_until = now + HOLD_AFTER_BUSY_S
            self._restart(now)

    def _judge(self) -> None:
        now = self._clock()
        took = now - self._began
        if self._fixed or took < INTERVAL_S or self._done < LEAST_DONE * self.width or now < self._held_until:
            return
        rate = self._done / took
        if self._climbing:
            if rate >= GROWTH * self._best_rate and self.width < self.most:
                self._best_rate = rate
                self.width = min(2 * self.width, self.most)
            else:
                if rate < GROWTH * self._best_rate:
                    self.width = max(LOWEST, self.width // 2)
                self._climbing, self._steady = False, 0
        else:
            self._steady += 1
            if self._steady >= 30:
                self._best_rate, self._climbing = rate, True
                self.width = min(2 * self.width, self.most)
        self.highest_used = max(self.highest_used, self.width)
        self._restart(now)

    def _restart(self, now: float) -> None:
        self._began, self._done = now, 0
