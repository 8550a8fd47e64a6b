"""The concurrency of transfers: doubles while the rate grows, settles at the knee, backs off when the store asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

START = 64  # 1.1 to 1.25 times the rate of 32 at 20 ms; 16 to 64 were indistinguishable at 0 ms (measurements/stage.md)
LOWEST = 1
GROWTH = 1.05  # a doubling that gains less is not worth its sockets
INTERVAL_S = 0.5
FIRST_INTERVAL_S = 0.25  # not evaluated: connections are opened during it
LEAST_DONE = 4  # completions per transfer in flight that an interval needs to be evaluated
HOLD_AFTER_BUSY_S = 5.0
STEADY = 60  # intervals between attempts to step up again


class ConcurrencyLimit:
    """Adapts the number of concurrent transfers to the measured rate.

    Doubles while an interval's rate is at least ``GROWTH`` times the best so far, then returns to the previous limit
    and stays there. When the store says "slow down" the limit is halved and held for a while. Networks change, so every
    60 intervals one step up is tried again.

    Attributes:
        maximum: the limit never exceeds it.
        current: the limit now.
        peak: the highest limit so far.
    """

    def __init__(self, maximum: int, fixed: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """Start at ``START``, or at ``maximum`` where that is lower or fixed.

        Args:
            maximum: the limit never exceeds it.
            fixed: keep ``maximum`` all the time.
            clock: seconds, for tests.
        """
        self.maximum = maximum
        self.current = maximum if fixed else min(START, maximum)
        self.peak = self.current
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

    def slow_down(self) -> None:
        """Halve the limit because the store asked to slow down."""
        with self._changing:
            now = self._clock()
            if now < self._held_until or self._fixed:
                return
            self.current = max(LOWEST, self.current // 2)
            self._climbing = False
            self._held_until = now + HOLD_AFTER_BUSY_S
            self._began = 0.0  # bytes moved before now do not count for this limit

    def update(self, done: int) -> None:
        """Re-evaluate the limit; call a few times per second.

        Args:
            done: objects completed since the beginning.
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
            if took < INTERVAL_S or count < LEAST_DONE * self.current:
                return
            self._step(count / took)
            self.peak = max(self.peak, self.current)
            self._began, self._done_before = now, done

    def _step(self, rate: float) -> None:
        if self._climbing:
            if rate >= GROWTH * self._best_rate and self.current < self.maximum:
                self._best_rate = rate
                self.current = min(2 * self.current, self.maximum)
            else:
                if rate < GROWTH * self._best_rate:
                    self.current = max(LOWEST, self.current // 2)
                self._climbing, self._steady = False, 0
        else:
            self._steady += 1
            if self._steady >= STEADY:
                self._best_rate, self._climbing = rate, True
                self.current = min(2 * self.current, self.maximum)
