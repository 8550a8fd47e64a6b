"""How many blocks of the last steps fit into the time and into the pass."""

from __future__ import annotations

import pytest

from flatout.probe.contract import DOUBLED, REPLAYED, SINGLE, TRIMMED
from flatout.probe.experiments import changed_steps, last_steps
from flatout.probe.experiments.block_plan import UNUSED, plan

MS, S = 1_000_000, 1_000_000_000


def test_all_that_follows_the_window_takes_ten_seconds_at_the_most() -> None:
    rates_ns = S // 2  # of the device
    with_batches_ns = changed_steps.LIMIT_WITH_BATCHES_NS + rates_ns + last_steps.LEAST_NS
    assert max(with_batches_ns, changed_steps.LIMIT_NS + rates_ns, last_steps.LIMIT_NS) <= 10 * S


def test_doubled_blocks_lie_between_single_ones() -> None:
    planned = plan(1 * MS, 1, None, 4 * S, doubling=True)
    assert planned.changes == (REPLAYED,) * 5 + (SINGLE, DOUBLED) * 5 + (SINGLE,)
    assert (planned.length, planned.because) == (100, None)


def test_trimmed_blocks_lie_between_single_ones_and_come_before_doubled_ones() -> None:
    planned = plan(1 * MS, 1, None, 5 * S, doubling=True, trimming=True)
    assert planned.changes == (REPLAYED,) * 5 + (SINGLE, TRIMMED) * 4 + (SINGLE, DOUBLED) * 5 + (SINGLE,)
    slow = plan(200 * MS, 1, None, 5 * S, doubling=True, trimming=True)
    assert slow.changes == (REPLAYED,) * 3 + (SINGLE, TRIMMED) * 4 + (SINGLE,)
    assert plan(300 * MS, 1, None, 3 * S, doubling=True, trimming=True).changes == (REPLAYED,) * 3


def test_a_compiled_model_gets_replayed_batches_only() -> None:
    assert set(plan(1 * MS, 1, None, 4 * S, doubling=False).changes) == {REPLAYED}


def test_blocks_are_whole_updates() -> None:
    assert plan(3 * MS, 8, None, 4 * S, doubling=True).length == 32


def test_slow_steps_are_replayed_and_not_doubled() -> None:
    planned = plan(300 * MS, 1, None, 3 * S, doubling=True)
    assert planned.changes == (REPLAYED,) * 3 and planned.length == 1
    assert planned.because == "a step takes 0.3 s, too long to try more in 3 s"
    assert plan(1000 * MS, 1, None, 3 * S, doubling=True).changes == ()
    late = plan(66 * MS, 1, None, -2 * S, doubling=True)
    assert (late.changes, late.because) == ((), "earlier looks had taken the time after the window")


@pytest.mark.parametrize("left", [12, 40, 60, 200, 3000])
def test_no_plan_takes_more_batches_than_the_pass_has(left: int) -> None:
    planned = plan(1 * MS, 1, left, 4 * S, doubling=True)
    assert len(planned.changes) * (planned.length + planned.uncounted) <= left - UNUSED


def test_a_pass_that_is_nearly_over_may_be_followed_by_a_longer_one() -> None:
    planned = plan(1 * MS, 1, 8, 4 * S, doubling=True)
    assert (planned.changes, planned.pass_ends) == ((), True)
    assert planned.because == "only 8 batches of the pass were left"
