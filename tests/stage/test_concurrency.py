"""How many at once: up to the knee, down when asked."""

from __future__ import annotations

from flatout.stage.concurrency import HOLD_AFTER_BUSY_S, START, ConcurrencyLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def drive(limit: ConcurrencyLimit, clock: Clock, knee: float, seconds: float, latency_s: float = 0.02) -> None:
    """A store whose rate grows with the limit up to ``knee`` objects a second."""
    until, done = clock.now + seconds, 0
    while clock.now < until:
        rate = min(limit.current / latency_s, knee)
        clock.now += limit.current / rate
        done += limit.current
        limit.update(done)


def test_the_limit_grows_to_the_knee_and_stays_near_it() -> None:
    clock = Clock()
    limit = ConcurrencyLimit(512, clock=clock)
    drive(limit, clock, knee=3_000, seconds=20)  # 60 in flight are enough
    assert 60 <= limit.current <= 128


def test_a_store_that_never_profits_from_more_is_left_at_the_start() -> None:
    clock = Clock()
    limit = ConcurrencyLimit(512, clock=clock)
    drive(limit, clock, knee=START / 0.02, seconds=20)
    assert limit.current == START


def test_a_store_that_asks_to_go_slower_is_obeyed_once_and_held() -> None:
    clock = Clock()
    limit = ConcurrencyLimit(64, clock=clock)
    before = limit.current
    for _ in range(10):  # many requests were in flight when it said so
        limit.slow_down()
    assert limit.current == before // 2
    clock.now += HOLD_AFTER_BUSY_S
    limit.slow_down()
    assert limit.current == before // 4


def test_a_fixed_width_stays() -> None:
    clock = Clock()
    limit = ConcurrencyLimit(7, fixed=True, clock=clock)
    drive(limit, clock, knee=1e9, seconds=5)
    limit.slow_down()
    assert limit.current == 7
