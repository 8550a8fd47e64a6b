"""An epoch's wall time, divided into training, validation and waiting."""

from __future__ import annotations

import pytest

from flatout.recipes.epoch_clock import EpochClock


class Time:
    """A clock and a loader's wait that move when they are told."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waited_s = 7.0

    def clock(self) -> EpochClock:
        return EpochClock(lambda: self.waited_s, lambda: self.now_s)


def test_an_epoch_is_training_and_validation() -> None:
    time = Time()
    clock = time.clock()
    time.now_s += 10
    time.waited_s += 4
    clock.validation_begins()
    time.now_s += 3
    clock.validation_ends()
    assert (clock.train_s, clock.validation_s, clock.wait_s, clock.epoch_s) == (10.0, 3.0, 4.0, 13.0)


def test_a_pause_belongs_to_no_epoch() -> None:
    time = Time()
    clock = time.clock()
    time.now_s += 2
    with clock.pause():
        time.now_s += 50
    time.now_s += 1
    assert clock.epoch_s == 3.0


def test_a_pause_that_raises_counts_as_a_pause_too() -> None:
    time = Time()
    clock = time.clock()
    with pytest.raises(KeyboardInterrupt), clock.pause():
        time.now_s += 50
        raise KeyboardInterrupt
    assert clock.epoch_s == 0.0


def test_a_resumed_epoch_goes_on_with_what_it_had_spent() -> None:
    time = Time()
    clock = time.clock()
    clock.begin(epoch_s=30.0, wait_s=5.0)
    time.now_s += 10
    time.waited_s += 1
    assert (clock.epoch_s, clock.wait_s) == (40.0, 6.0)


def test_the_next_epoch_begins_at_zero() -> None:
    time = Time()
    clock = time.clock()
    time.now_s += 10
    time.waited_s += 4
    clock.validation_begins()
    time.now_s += 3
    clock.validation_ends()
    clock.begin()
    assert (clock.train_s, clock.validation_s, clock.wait_s) == (0.0, 0.0, 0.0)
