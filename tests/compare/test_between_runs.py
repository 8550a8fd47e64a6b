"""The factor and its interval: what one pair tells, what several do, and how many true factors an interval holds."""

import math

import numpy as np
import pytest

from flatout.compare.between_runs import Prior, estimate

QUIET = Prior(typical=0.02, follows=0.0, spread=0.7)
STEADY = (0.007, 0.007)


def test_one_pair_has_the_interval_of_its_steps_and_of_runs_of_other_trainings() -> None:
    found = estimate([math.log(3.0)], [(0.01, 0.01)], QUIET)
    assert math.exp(found.mean) == pytest.approx(3.0)
    assert 2.6 < math.exp(found.low) < 2.9 and math.exp(found.low) * math.exp(found.high) == pytest.approx(9.0)
    assert found.between == pytest.approx(0.02, rel=0.15)
    # Steps that vary less do not make runs alike.
    assert estimate([0.0], [(0.0, 0.0)], QUIET).high > 0.03


def test_two_pairs_that_agree_are_surer_and_two_that_do_not_less_sure() -> None:
    one = estimate([0.4], [STEADY], QUIET)
    alike = estimate([0.41, 0.39], [STEADY, STEADY], QUIET)
    apart = estimate([0.1, 0.7], [STEADY, STEADY], QUIET)
    assert one.low < alike.low < 0.4 < alike.high < one.high
    assert apart.low < 0.25 and apart.high > 0.55 and apart.between > 3 * alike.between


def test_a_pair_with_a_stalled_run_weighs_little() -> None:
    found = estimate([math.log(8.0), math.log(0.7)], [(0.02, 0.02), (0.02, 0.9)], QUIET)
    assert math.exp(found.low) > 5.0


def test_runs_of_steps_that_vary_are_taken_to_differ_more_until_pairs_say_otherwise() -> None:
    prior = Prior(typical=0.02, follows=1.0, spread=0.7)
    assert prior.median(0.04) == pytest.approx(0.08) and prior.median(0.0) > 0
    calm, shaky = estimate([0.4], [(0.01, 0.01)], prior), estimate([0.4], [(0.04, 0.04)], prior)
    assert shaky.between > 3 * calm.between
    # One stalled run does not make the others differ.
    assert estimate([0.4], [(0.01, 0.5)], prior).between == pytest.approx(calm.between, rel=0.1)


def test_the_interval_holds_the_true_factor_as_often_as_it_says() -> None:
    draw = np.random.default_rng(5)
    for pairs in (1, 2, 4):
        held = 0
        for _ in range(300):
            between = QUIET.typical * math.exp(QUIET.spread * draw.normal())
            logs = draw.normal(0.2, math.sqrt(2 * between**2 + 2 * 0.007**2), pairs)
            found = estimate(logs.tolist(), [(0.007, 0.007)] * pairs, QUIET)
            held += found.low < 0.2 < found.high
        assert 0.85 < held / 300 < 0.95


@pytest.mark.parametrize(
    ("logs", "errors"), [([], []), ([0.1], [STEADY, STEADY]), ([math.nan], [STEADY]), ([0.1], [(0.1, math.inf)])]
)
def test_what_is_no_pair_of_numbers_is_refused(logs: list[float], errors: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=r"needs a pair|not a finite number"):
        estimate(logs, errors)
