"""One policy of trying again: by time, with pauses that grow, and as long as the server asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flatout.stage.sources import retries
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.retries import with_retries
from tests.stage.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(retries, "time", made)
    return made


def away_until(clock: Clock, end: float, kind: str = "busy") -> Callable[[], str]:
    def action() -> str:
        if clock.now < end:
            raise Failure(kind, "away")  # type: ignore[arg-type]
        return "there"

    return action


@pytest.mark.parametrize("kind", ["busy", "again"])
@pytest.mark.parametrize("away_s", [1.0, 40.0, 100.0])
def test_a_store_that_is_away_for_less_than_the_budget_loses_nothing(clock: Clock, away_s: float, kind: str) -> None:
    for _ in range(20):
        assert with_retries(away_until(clock, clock.now + away_s, kind)) == "there"


def test_a_store_that_stays_away_is_given_up_when_the_budget_is_spent(clock: Clock) -> None:
    began = clock.now
    tried: list[Failure] = []
    with pytest.raises(Failure, match=r"away \(tried \d+ times\)") as given_up:
        with_retries(away_until(clock, 1e9), tried.append)
    assert given_up.value.kind == "busy" and 10 < len(tried) < 60
    assert retries.GIVE_UP_S <= clock.now - began < retries.GIVE_UP_S + 1


@pytest.mark.parametrize("kind", ["gone", "denied", "changed", "never"])
def test_what_another_try_cannot_help_is_asked_for_once(clock: Clock, kind: str) -> None:
    tried: list[Failure] = []
    with pytest.raises(Failure, match=r"away$"):
        with_retries(away_until(clock, 1e9, kind), tried.append)
    assert not tried and clock.now == 1.0


def test_a_retry_after_is_the_least_pause_up_to_a_limit(clock: Clock) -> None:
    asked: list[float] = []

    def action() -> None:
        asked.append(clock.now)
        raise Failure("busy", "later", retry_after_s=30.0 if len(asked) == 1 else 1e6)

    with pytest.raises(Failure):
        with_retries(action)
    assert asked[1] - asked[0] >= 30 and asked[2] - asked[1] >= retries.LONGEST_RETRY_AFTER_S
    assert clock.now - asked[0] < retries.GIVE_UP_S + 1


def test_a_pause_ends_when_all_is_stopped(clock: Clock) -> None:
    with pytest.raises(Failure, match=r"away$"):
        with_retries(away_until(clock, 1e9), stopped=lambda: clock.now > 3)
    assert clock.now < 3 + retries.CHECK_STOPPED_S + 0.01


def test_what_was_given_up_is_not_tried_for_as_long_once_more(clock: Clock) -> None:
    began = clock.now
    with pytest.raises(Failure, match=r"away \(tried \d+ times\)$"):
        with_retries(lambda: with_retries(away_until(clock, 1e9)))
    assert clock.now - began < retries.GIVE_UP_S + 1


def test_the_budget_may_grow_when_a_server_has_answered(clock: Clock) -> None:
    with pytest.raises(Failure):
        with_retries(away_until(clock, 1e9), give_up_s=lambda: 5.0)
    assert clock.now < 7
    assert with_retries(away_until(clock, clock.now + 40), give_up_s=lambda: 120.0) == "there"
