"""Pairs of runs: how many, in which order, and what is left out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from flatout.compare.ratio import Ratio
from flatout.trials.budget import OutOfTime
from flatout.trials.outcome import OUT_OF_MEMORY, TrialRun
from flatout.trials.pairs import Pairs, measure_pairs
from flatout.trials.sequential import decided, gains
from tests.trials.made_runs import STEPS, trial_run

A: dict[str, Any] = {}
B: dict[str, Any] = {"num_workers": 4}


def runs(rates_a: list[float], rates_b: list[float]) -> tuple[Any, list[str]]:
    order: list[str] = []
    left = {"a": iter(rates_a), "b": iter(rates_b)}

    def run(settings: Mapping[str, Any], seed: int) -> TrialRun:
        name = "b" if settings else "a"
        assert seed == len(order) // 4, "of two pairs in a row"
        order.append(name)
        return trial_run(next(left[name]))

    return run, order


def measured(run: Any, room: int = 100) -> Pairs:
    used = [0]

    def has_room(runs: int) -> bool:
        used[0] += runs
        return used[0] <= room

    return measure_pairs(run, A, B, room=has_room, decided=decided)


def test_a_clear_gain_takes_two_pairs_in_turn() -> None:
    run, order = runs([100, 101], [200, 203])
    found = measured(run)
    assert order == ["a", "b", "b", "a"]
    ratio = found.ratio()
    assert ratio is not None and ratio.pairs == 2 and 1.9 < ratio.low < 2.0 < ratio.high
    assert gains(ratio)


def test_an_unclear_gain_takes_more_pairs() -> None:
    run, order = runs([100, 104, 98, 101], [115, 103, 107, 110])
    assert len(measured(run).a) > 2 and len(order) > 4


def test_what_is_slower_in_its_first_pair_gets_no_second_one() -> None:
    run, order = runs([100], [60])
    ratio = measured(run).ratio()
    assert order == ["a", "b"] and ratio is not None and ratio.pairs == 1 and not gains(ratio)


def test_a_single_pair_never_keeps_anything() -> None:
    assert not gains(Ratio(2.0, 1.9, 2.1, 1))


def test_a_stalled_pair_is_measured_again() -> None:
    still = [0.08] * (STEPS - 1) + [10.0]
    rates = [150, 100, 100, 150]  # B A, A B
    sides = iter([trial_run(100), trial_run(50, steps_s=still), *map(trial_run, rates)])
    found = measure_pairs(lambda settings, seed: next(sides), A, B, room=lambda runs: True, decided=decided)
    assert found.stalled == 1 and len(found.a) == 2


def test_time_that_runs_out_in_the_second_pair_does_not_lose_the_first_one() -> None:
    rates = iter([100, 300, 300])

    def run(settings: Mapping[str, Any], seed: int) -> TrialRun:
        rate = next(rates, None)
        if rate is None:
            raise OutOfTime
        return trial_run(rate)

    found = measured(run)
    ratio = found.ratio()
    assert ratio is not None and ratio.pairs == 1 and found.failed is None and ratio.low > 2.0
    with pytest.raises(OutOfTime):
        measured(run)


def test_a_side_that_fails_ends_the_trial() -> None:
    sides = iter([trial_run(100), TrialRun(OUT_OF_MEMORY, "CUDA out of memory", 3.0)])
    found = measure_pairs(lambda settings, seed: next(sides), A, B, room=lambda runs: True, decided=lambda ratio: True)
    assert found.failed is not None and not found.failed_without and found.ratio() is None


@pytest.mark.parametrize(
    ("calls", "factor"),
    [((200.0, 1.0), 1.25), ((100.0, 1.0), 0.625), ((200.0, 2.0), 0.625), (None, 0.625)],
)
def test_steps_with_as_many_samples_in_a_call_count_as_the_same(
    calls: tuple[float, float] | None, factor: float
) -> None:
    """As without a test loss in each step: the network has half as many calls, and the losses are of other batches."""
    before, after = trial_run(400.0, losses=(1.0, 0.9)), trial_run(250.0, losses=(1.1, 0.8))
    assert before.speed is not None and after.speed is not None
    a = replace(before.speed, guessed=True, steps_rate=1.0, batch=400.0, calls=(200.0, 1.0))
    b = replace(after.speed, guessed=True, steps_rate=1.25, batch=200.0, calls=calls)
    found = Pairs([replace(before, speed=a)], [replace(after, speed=b)]).ratio()
    assert found is not None and found.factor == pytest.approx(factor)
