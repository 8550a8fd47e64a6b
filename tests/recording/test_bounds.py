"""When a recording ends by itself."""

from __future__ import annotations

import math

import pytest

from flatout.errors import UsageError
from flatout.runner import Bounds


@pytest.mark.parametrize(
    ("bounds", "steps", "elapsed_s", "reached"),
    [
        (Bounds(steps=10), 9, 500.0, None),
        (Bounds(steps=10), 10, 0.1, "steps"),
        (Bounds(seconds=5.0, over=lambda: True), 1, 0.1, "seconds"),
        (Bounds(seconds=5.0, over=lambda: False), 1, 0.1, None),
        (Bounds(seconds=5.0), 1, 5.0, "seconds"),
        (Bounds(seconds=5.0), 1000, 4.9, None),
        (Bounds(steps=10, seconds=5.0), 10, 9.0, "steps"),
        (Bounds(full=True), 10**6, 10**6, None),
        (Bounds(seconds=5.0, least_steps=6), 5, 6.0, None),
        (Bounds(seconds=5.0, least_steps=6), 6, 6.0, "seconds"),
        (Bounds(seconds=5.0, least_steps=6), 5, 20.0, "seconds"),
    ],
)
def test_the_first_bound_that_is_reached_ends_the_window(
    bounds: Bounds, steps: int, elapsed_s: float, reached: str | None
) -> None:
    assert bounds.reached(steps, elapsed_s) == reached


@pytest.mark.parametrize(
    ("steps", "elapsed_s", "reached"),
    [(10_000, 59.0, None), (12, 60.0, "seconds"), (11, 61.0, None), (11, 599.0, None), (1, 600.0, "seconds")],
)
def test_without_a_bound_slow_steps_are_given_longer(steps: int, elapsed_s: float, reached: str | None) -> None:
    assert Bounds().reached(steps, elapsed_s) == reached


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"steps": 0}, "--steps is 0"),
        ({"seconds": 0.0}, "--seconds is 0"),
        ({"seconds": -1.5}, "--seconds is -1.5"),
        ({"steps": 10**23}, "--steps is 100000000000000000000000, but must be at most 1000000000000"),
        ({"seconds": 1e99}, "at most 3650d"),
        ({"seconds": math.nan}, "--seconds is nan"),
        ({"seconds": math.inf}, "--full"),
        ({"full": True, "steps": 1}, "leave out --steps"),
        ({"first_step_within_s": 0.0}, "--first-step-within is 0 s"),
    ],
)
def test_a_bound_that_could_never_be_meant_is_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Bounds(**values)  # type: ignore[arg-type]
