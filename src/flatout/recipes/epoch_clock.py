"""Times of one epoch: training, validation, and waiting for batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class EpochClock:
    """Divides an epoch's wall time; time inside ``pause`` is excluded.

    Args:
        waited_s: returns the cumulative seconds that the training has waited for batches.
        now: seconds of a monotonic clock.
    """

    def __init__(self, waited_s: Callable[[], float], now: Callable[[], float] = time.perf_counter) -> None:
        self._waited_s, self._now = waited_s, now
        self.validation_s = 0.0
        self.begin()

    def begin(self, epoch_s: float = 0.0, wait_s: float = 0.0) -> None:
        """Begin an epoch; after a resume, with the seconds already spent on it."""
        self._began = self._now() - epoch_s
        self._waited_before = self._waited_s() - wait_s
        self._validation_began = self._began
        self.validation_s = 0.0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time that belongs to no epoch."""
        paused = self._now()
        try:
            yield
        finally:
            self._began += self._now() - paused

    def validation_begins(self) -> None:
        self._validation_began = self._now()

    def validation_ends(self) -> None:
        self.validation_s = self._now() - self._validation_began

    @property
    def epoch_s(self) -> float:
        """Seconds since the epoch began, validation included."""
        return self._now() - self._began

    @property
    def train_s(self) -> float:
        """Seconds since the epoch began, validation left out."""
        return self.epoch_s - self.validation_s

    @property
    def wait_s(self) -> float:
        """Seconds of this epoch in which the training waited for batches."""
        return self._waited_s() - self._waited_before
