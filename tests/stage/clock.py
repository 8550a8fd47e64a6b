"""A clock for the retries: nothing waits, and how long a request took does not count."""

from __future__ import annotations

from flatout.stage.sources import retries


class Clock:
    """Stands for the ``time`` module; its time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds <= retries.CHECK_STOPPED_S
        self.now += seconds
