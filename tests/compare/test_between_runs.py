"""The factor and its interval: what one pair tells, what several do, and how many true factors an interval holds."""

import math

import numpy as np
import pytest

from flatout.compare.between_runs import Prior, estimate

QUIET = Prior(typical=0.02, spread=0.7)


def test_one_pair_has_the_interval_of_its_steps_and_of_runs_of_other_trainings() -> None:
    found = estimate([math.log(3.0)], [0.02**2], QUIET)
    assert math.exp(found.mean) == pytest.approx(3.0)
    assert 2.6 < math.exp(found.low) < 2.9 and math.exp(found.low) * math.exp(found.high) == pytest.approx(9.0)
    assert found.between == pytest.approx(0.02, rel=0.15)
    # Steps that vary less do not make runs alike.
    assert estimate([0.0], [0.0], QUIET).high > 0.03


def test_two_pairs_that_agree_are_surer_and_two_that_do_not_less_sure() -> None:
    one = estimate([0.4], [1e-4], QUIET)
    alike = estimate([0.41, 0.39], [1e-4, 1e-4], QUIET)
    apart = estimate([0.1, 0.7], [1e-4, 1e-4], QUIET)
    assert one.low < alike.low < 0.4 < alike.high < one.high
    assert apart.low < 0.25 and apart.high > 0.55 and apart.between > 3 * alike.between


def test_a_pair_with_a_stalled_run_weighs_little() -> None:
    found = estimate([math.log(8.0), math.log(0.7)], [0.02**2, 0.9**2], QUIET)
    assert math.exp(found.low) > 5.0


def test_the_interval_holds_the_true_factor_as_often_as_it_says() -> None:
    draw = np.random.default_rng(5)
    for pairs in (1, 2, 4):
        held = 0
        for _ in range(300):
            between = QUIET.typical * math.exp(QUIET.spread * draw.normal())
            logs = draw.normal(0.2, math.sqrt(2 * between**2 + 0.01**2), pairs)
            found = estimate(logs.tolist(), [0.01**2] * pairs, QUIET)
            held += found.low < 0.2 < found.high
        assert 0.85 < held / 300 < 0.95


@pytest.mark.parametrize(
    ("logs", "variances"), [([], []), ([0.1], [0.1, 0.2]), ([math.nan], [0.1]), ([0.1], [math.inf])]
)
def test_what_is_no_pair_of_numbers_is_refused(logs: list[float], variances: list[float]) -> None:
    with pytest.raises(ValueError, match=r"needs a pair|not a finite number"):
        estimate(logs, variances)
