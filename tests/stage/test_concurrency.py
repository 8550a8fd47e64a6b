"""How many at once: up to the knee, down when asked."""

from __future__ import annotations

from flatout.stage.concurrency import HOLD_AFTER_BUSY_S, START, Permits


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def drive(permits: Permits, clock: Clock, knee: float, seconds: float, latency_s: float = 0.02) -> None:
    """A store whose rate grows with the width up to ``knee`` objects a second."""
    until = clock.now + seconds
    while clock.now < until:
        rate = min(permits.width / latency_s, knee)
        for _ in range(permits.width):
            permits.take()
        clock.now += permits.width / rate
        for _ in range(permits.width):
            permits.give(True)


def test_the_width_grows_to_the_knee_and_stays_near_it() -> None:
    clock = Clock()
    permits = Permits(512, clock=clock)
    drive(permits, clock, knee=3_000, seconds=20)  # 60 in flight are enough
    assert 60 <= permits.width <= 128


def test_a_store_that_never_profits_from_more_is_left_at_the_start() -> None:
    clock = Clock()
    permits = Permits(512, clock=clock)
    drive(permits, clock, knee=START / 0.02, seconds=20)
    assert permits.width == START


def test_a_store_that_asks_to_go_slower_is_obeyed_once_and_held() -> None:
    clock = Clock()
    permits = Permits(64, clock=clock)
    before = permits.width
    for _ in range(10):  # many requests were in flight when it said so
        permits.busy()
    assert permits.width == before // 2
    clock.now += HOLD_AFTER_BUSY_S
    permits.busy()
    assert permits.width == before // 4


def test_a_fixed_width_stays() -> None:
    clock = Clock()
    permits = Permits(7, fixed=True, clock=clock)
    drive(permits, clock, knee=1e9, seconds=5)
    permits.busy()
    assert permits.width == 7
