"""When a trial is decided: proved, ruled out, beyond hope, or worth another pair."""

import math
from dataclasses import replace

import pytest

from flatout.compare.ratio import Ratio
from flatout.trials.sequential import MOST_PAIRS, chance_of_proof, clears, decided, gains, hopeless, pairs_needed


def ratio(factor: float, error: float, pairs: int) -> Ratio:
    """With an interval of 1.645 standard errors of the logarithm."""
    return Ratio(factor, factor * math.exp(-1.645 * error), factor * math.exp(1.645 * error), pairs)


def test_a_clear_gain_of_one_pair_gets_a_second_one_and_is_then_decided() -> None:
    assert not gains(ratio(3.0, 0.05, 1)) and not decided(ratio(3.0, 0.05, 1)) and not hopeless(ratio(3.0, 0.05, 1))
    assert gains(ratio(3.0, 0.05, 2)) and decided(ratio(3.0, 0.05, 2))


def test_pairs_that_other_processes_left_very_different_cores_decide_nothing() -> None:
    for uneven in (3.0, 1 / 3.0):
        found = replace(ratio(7.6, 0.3, 2), uneven=uneven)
        assert clears(found) and not gains(found) and not decided(found)
    assert gains(replace(ratio(7.6, 0.3, 2), uneven=1.4))


@pytest.mark.parametrize("found", [ratio(0.6, 0.05, 1), ratio(1.0, 0.01, 1), ratio(1.0, 0.04, 2)])
def test_what_is_no_gain_or_could_hardly_become_one_is_decided(found: Ratio) -> None:
    assert decided(found) and not gains(found)


@pytest.mark.parametrize("found", [ratio(1.25, 0.3, 1), ratio(1.1, 0.06, 2)])
def test_an_unclear_gain_is_worth_another_pair(found: Ratio) -> None:
    assert not decided(found) and 0.1 < chance_of_proof(found, MOST_PAIRS) < 1.0


def test_the_chance_after_the_last_pair_is_none_or_certain() -> None:
    assert chance_of_proof(ratio(1.1, 0.1, MOST_PAIRS), MOST_PAIRS) == 0.0
    assert chance_of_proof(ratio(2.0, 0.1, MOST_PAIRS), MOST_PAIRS) == 1.0


def test_the_pairs_that_a_proof_needs_follow_from_the_interval() -> None:
    assert pairs_needed(ratio(3.0, 0.05, 1)) == 2
    # 1.645 * 0.1 / ln(1.1 / 1.03) = 2.5: 2.5² times as many pairs.
    assert pairs_needed(ratio(1.1, 0.1, 1)) == 7
    assert pairs_needed(ratio(1.02, 0.1, 1)) is None and pairs_needed(ratio(1.04, 0.5, 1)) is None
