"""Live trials: what can be switched, the plan of their blocks, the ratio that blocks give, and what it is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flatout.compare.ratio import Ratio
from flatout.probe import events
from flatout.record.events import EVENT_DTYPE
from flatout.results import Gain, Remedy
from flatout.trials import live
from flatout.trials.live import Finding, Plan, not_live, plan
from flatout.trials.result import DROPPED, KEPT, UNCONFIRMED, Proof
from flatout.trials.screening import Costs, barred, confirmed, judged, screen, undecided, withdrawn

WORKERS = Remedy(
    "workers", "c", "raise num_workers", "identical", "low", Gain(2.0, 1.8, 2.2), 0, "write it", "", {"num_workers": 4}
)
SLOW_START = Costs(start_s=60.0, run_s=70.0, step_s=0.1, left_s=1000.0)


def blocks(*rows: tuple[int, int, int, int, int, float]) -> Any:
    """LIVE_BLOCK events from (number, samples, batches, ready before, ready after, seconds)."""
    made = np.zeros(len(rows), EVENT_DTYPE)
    for event, (number, samples, batches, before, after, seconds) in zip(made, rows, strict=True):
        event["kind"], event["arg"], event["a"] = events.LIVE_BLOCK, number, samples
        event["b"], event["duration"] = events.block_bits(batches, before, after), round(seconds * 1e9)
    return made


def test_only_settings_that_a_running_training_takes_are_switched() -> None:
    assert not not_live({"num_workers": 4, "persistent_workers": True, "tf32": True})
    assert not_live({"num_workers": 4, "batch_size": 64}) == "batch_size cannot be switched in a running training"


def test_a_plan_has_pairs_in_an_order_that_is_drawn() -> None:
    orders = {plan({"num_workers": 4}, {}, 0.01, seed).order for seed in range(20)}
    assert len(orders) > 3
    for order in orders:
        assert all(set(order[place : place + 2]) == {0, 1} for place in range(0, len(order), 2))


def test_a_block_holds_several_batches_of_every_worker() -> None:
    made = plan({"num_workers": 8}, {"num_workers": 2}, 1.0, 0)
    assert made.least_batches == 24 and made.block_s == 24.0


def rates(least_s: float, *rows: tuple[int, int, int, int, int, float]) -> dict[int, float]:
    """Rates of blocks whose queue holds 8 batches."""
    return live._rates(blocks(*rows), Plan(({}, {}), (0, 1), least_s, 1, 1.0, (8, 8)))


def test_rates_of_blocks_add_their_parts_up_and_leave_unfinished_ones_out() -> None:
    found = rates(1.5, (0, 80, 10, 0, 0, 1.0), (0, 160, 20, 0, 0, 1.0), (1, 80, 10, 0, 0, 0.5))
    assert found == {0: pytest.approx(120.0)}


def test_batches_that_were_only_taken_out_of_the_queue_do_not_count() -> None:
    emptied, burst = rates(1.0, (0, 80, 10, 8, 0, 1.0)), rates(1.0, (0, 80, 10, 0, 2, 1.0))
    steady, filled = rates(1.0, (0, 80, 10, 8, 7, 1.0)), rates(1.0, (0, 80, 10, 0, 8, 1.0))
    found = [made[0] for made in (emptied, burst, steady, filled)]
    assert found == pytest.approx([16.0, 96.0, 80.0, 80.0])


def test_without_known_samples_batches_are_counted() -> None:
    assert rates(1.0, (0, 0, 10, 0, 0, 1.0)) == {0: pytest.approx(10.0)}


@pytest.mark.parametrize(
    ("settings", "costs", "why"),
    [
        ({"num_workers": 4}, SLOW_START, ""),
        ({"batch_size": 4}, SLOW_START, "batch_size cannot be switched"),
        ({"num_workers": 4}, Costs(2.0, 5.0, 0.1, 1000.0), "and a run takes"),
        ({"num_workers": 4}, Costs(60.0, 70.0, 0.1, 300.0), "and 5 min of the budget is left"),
    ],
)
def test_a_live_trial_is_made_where_it_saves_time(settings: dict[str, Any], costs: Costs, why: str) -> None:
    found = barred(settings, plan(settings, {}, costs.step_s, 0), costs)
    assert why in found and bool(found) == bool(why)


def test_what_is_not_live_starts_no_run() -> None:
    def run(*_: Any) -> Any:
        raise AssertionError("no run is made")

    assert screen(run, {"batch_size": 4}, {}, {}, SLOW_START, 0).ratio is None


def test_a_clear_live_gain_is_kept_as_far_as_the_proof_confirms_it() -> None:
    trial = judged(WORKERS, Finding(Ratio(1.8, 1.7, 1.9, 5), "in 5 pairs of blocks"), 10.0)
    assert trial is not None and trial.outcome == KEPT and trial.screened
    assert confirmed(Proof(1.0, 1.8, Ratio(1.8, 1.6, 2.0, 2), "samples/s", "", True))
    weak = Proof(1.0, 1.0, Ratio(1.0, 0.9, 1.1, 2), "samples/s", "", True)
    one_pair = Proof(1.0, 1.8, Ratio(1.8, 1.7, 1.9, 1), "samples/s", "", True)
    diverged = Proof(1.0, 1.8, Ratio(1.8, 1.7, 1.9, 2), "samples/s", "other", False)
    for proof in (None, weak, one_pair, diverged):
        assert not confirmed(proof)
        (after,) = withdrawn([trial], proof)
        assert after.outcome == UNCONFIRMED and "not kept" in after.why and not after.screened


def test_no_live_gain_drops_and_an_unclear_one_asks_for_runs() -> None:
    dropped = judged(WORKERS, Finding(Ratio(1.0, 0.99, 1.01, 5), "in blocks"), 10.0)
    assert dropped is not None and dropped.outcome == DROPPED and dropped.live
    unclear = Ratio(1.1, 0.95, 1.3, 5)
    assert judged(WORKERS, Finding(unclear, "in blocks"), 10.0) is None
    assert undecided(unclear, "in blocks").startswith("the live trial did not decide it: 1.10x")
    assert judged(WORKERS, Finding(None, "no block"), 10.0) is None
