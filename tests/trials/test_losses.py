"""Whether a trial trains the same."""

import math

import numpy as np
import pytest

from flatout.trials.losses import check

CURVE = [2.3 * math.exp(-step / 60) + 0.3 for step in range(80)]


def noisy(seed: int, scale: float = 0.02) -> list[float]:
    return (np.asarray(CURVE) + np.random.default_rng(seed).normal(0, scale, len(CURVE))).tolist()


def test_equal_losses_pass_to_the_bit() -> None:
    found = check([CURVE, CURVE], [CURVE, CURVE], "identical")
    assert found.passed and found.same_bits and found.text == "the same 80 losses, bit for bit"


def test_runs_of_a_pair_are_compared_where_each_pair_has_a_seed_of_its_own() -> None:
    """A training without a seed, whose losses fall into two groups."""
    other = [2 * loss for loss in CURVE]
    found = check([CURVE, CURVE, other], [CURVE, CURVE, other], "identical", exact=True)
    assert found.passed and found.same_bits and found.text == "the same 80 losses, bit for bit, in each pair of runs"
    late = [*other[:50], 0.1, *other[51:]]
    assert check([CURVE, CURVE, other], [CURVE, CURVE, late], "identical", exact=True).passed  # this may be chance
    found = check([CURVE, CURVE, other, other], [CURVE, CURVE, other, late], "identical", exact=True)
    assert not found.passed and "with it loss 51 is another one" in found.text


def test_another_random_order_passes() -> None:
    assert check([noisy(1), noisy(2)], [noisy(3), noisy(4)], "identical").passed


@pytest.mark.parametrize("kind", ["identical", "numerics", "data"])
def test_a_training_that_stays_at_its_start_fails(kind: str) -> None:
    found = check([noisy(1), noisy(2)], [[2.6] * 80, [2.6] * 80], kind)
    assert not found.passed and "more than" in found.text


def test_without_losses_it_fails_closed() -> None:
    found = check([CURVE], [[]], "identical")
    assert not found.passed and found.text == "not checked: 0 losses were seen in a run, 10 are needed"
    assert not check([CURVE[:9]], [CURVE[:9]], "identical").passed


def test_a_loss_that_overflows_fails() -> None:
    bad = [*CURVE[:40], math.nan, *CURVE[41:]]
    found = check([CURVE], [bad], "numerics")
    assert not found.passed and "step 41 is nan" in found.text


def test_a_training_that_overflows_anyway_is_not_blamed_on_the_remedy() -> None:
    bad = [*CURVE[:40], math.inf, *CURVE[41:]]
    assert check([bad], [bad], "identical").passed


def test_a_lower_loss_is_no_fault_where_the_optimisation_changes() -> None:
    lower = [loss * 0.5 for loss in CURVE]
    assert check([CURVE, CURVE], [lower, lower], "optimisation").passed
    assert not check([CURVE, CURVE], [lower, lower], "identical").passed


def test_what_must_not_change_a_bit_fails_where_only_the_runs_without_it_repeat() -> None:
    other = [*CURVE[:30], CURVE[30] * 1.0001, *CURVE[31:]]
    found = check([CURVE, CURVE], [other, other], "identical", exact=True)
    assert not found.passed and "loss 31 is another one" in found.text
    assert check([CURVE, CURVE], [other, other], "identical").passed
    assert check([noisy(1), noisy(2)], [noisy(3), noisy(4)], "identical", exact=True).passed


def test_a_large_difference_that_chance_explains_says_so() -> None:
    """Runs of an unseeded training end far apart without the remedy, too."""
    low, high = [0.6 * loss for loss in CURVE], [1.3 * loss for loss in CURVE]
    found = check([low, high], [low, CURVE], "identical")
    assert found.passed and "(-15.8%)" in found.text
    assert "within the" in found.text and "runs without the remedy differ by 73.7%" in found.text
    assert "within" not in check([noisy(1), noisy(2)], [noisy(3), noisy(4)], "identical").text
