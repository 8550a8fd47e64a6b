"""The error of a run's rate: from blocks of steps that are independent, correlated, drifting, stalled or missing."""

import math

import numpy as np
import pytest

from flatout.compare.block_error import relative_error


def error(steps_s: np.ndarray) -> float:
    return relative_error(np.ones(len(steps_s)), steps_s)


def correlated(count: int, share: float, seed: int) -> np.ndarray:
    """Steps of 0.1 s whose deviations of 10% follow each other."""
    noise = np.random.default_rng(seed).normal(0, 0.01 * math.sqrt(1 - share**2), count)
    steps = np.empty(count)
    value = 0.0
    for number in range(count):
        value = share * value + noise[number]
        steps[number] = 0.1 + value
    return steps


def test_independent_steps_have_the_standard_error_of_their_mean() -> None:
    draw = np.random.default_rng(2)
    errors = [error(draw.normal(0.1, 0.01, 200)) for _ in range(100)]
    assert np.median(errors) == pytest.approx(0.1 / math.sqrt(200), rel=0.25)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_steps_that_follow_each_other_count_for_fewer(share: float) -> None:
    true = np.std([correlated(400, share, seed).mean() for seed in range(200)]) / 0.1
    said = np.median([error(correlated(400, share, seed)) for seed in range(60)])
    assert 0.8 * true < said < 2.0 * true


def test_a_drift_widens_the_error_to_its_own_size() -> None:
    steps = np.linspace(0.08, 0.12, 80) + np.random.default_rng(0).normal(0, 0.001, 80)
    assert error(steps) > 0.04


def test_a_stalled_block_makes_its_run_uncertain() -> None:
    steps = np.random.default_rng(0).normal(0.1, 0.002, 80)
    still = steps.copy()
    still[40] += 8.0
    assert error(steps) < 0.005 and error(still) > 0.4


def test_unequal_batches_at_one_rate_have_no_error() -> None:
    amounts = np.tile([8.0, 8.0, 8.0, 3.0], 20)
    assert relative_error(amounts, amounts * 0.01) == pytest.approx(0.0, abs=1e-12)
    assert error(np.full(5, 0.1)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("steps_s", "message"),
    [
        ([0.1] * 4, "4 steps: at least 5 are needed"),
        ([0.1] * 9 + [math.nan], "the duration of a step is nan"),
        ([0.1] * 9 + [math.inf], "the duration of a step is inf"),
        ([0.1] * 9 + [-1.0], r"the duration of a step is -1\.0"),
        ([0.0] * 10, r"the duration of a step is 0\.0"),
    ],
)
def test_steps_that_cannot_be_judged_are_named(steps_s: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        error(np.array(steps_s))
