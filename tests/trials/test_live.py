"""Live trials: what can be switched, the plan of their blocks, the ratio that blocks give, and what it is worth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flatout.compare.ratio import Ratio
from flatout.probe import events
from flatout.record.events import EVENT_DTYPE
from flatout.results import Gain, Remedy
from flatout.trials import live
from flatout.trials.live import Finding, Plan, not_live, plan
from flatout.trials.outcome import FAILED, TrialRun
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
    assert not not_live({"autocast": "bf16", "checkpoint_beside": True, "debugging_off": "anomaly_mode"})
    assert not_live({"num_workers": 4, "batch_size": 64}) == "batch_size cannot be switched in a running training"
    assert "scales gradients" in not_live({"autocast": "fp16"})


def test_a_plan_has_pairs_in_an_order_that_is_drawn() -> None:
    orders = {plan([{"num_workers": 4}], {}, 0.01, seed).order for seed in range(20)}
    assert len(orders) > 3
    for order in orders:
        assert all(set(order[place : place + 2]) == {0, 1} for place in range(0, len(order), 2))


def test_a_block_holds_several_batches_of_every_worker() -> None:
    made = plan([{"num_workers": 8}], {"num_workers": 2}, 1.0, 0)
    assert (made.turns, made.look_s) == (3, 24.0)


def test_blocks_are_as_short_as_steps_that_vary_little_allow() -> None:
    assert [plan([{}], {}, 1.0, 0, spread).least_batches for spread in (0.01, 0.1, 1.0)] == [4, 7, 12]


def told_run(**live: Any) -> Any:
    """A run with blocks of two candidates: 1.5x in two pairs, then nothing in one pair."""
    rows = [(number, 80 * (2 + made.order[number]), 10, 0, 0, 2.0) for number in range(4)]
    rows += [(number, 240, 10, 0, 0, 2.0) for number in (10, 11)]
    process = SimpleNamespace(info={"live": live}, of_kinds=lambda kind: blocks(*rows))
    return SimpleNamespace(info={}, process=process)


made = plan([{"num_workers": 2}, {"collect_seldom": True}], {"num_workers": 1}, 0.01, 0)


def test_each_candidate_has_the_ratio_of_its_own_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "find_training", lambda run: run)
    first, second = live.found(told_run(passes=False, gained=[0], refused={}), made)
    assert first.ratio is not None and first.ratio.pairs == 2 and first.ratio.factor == pytest.approx(1.5, rel=0.01)
    assert second.ratio is None and "1 of 2 pairs of blocks were complete in time" in second.because
    refused = live.found(told_run(passes=False, gained=[0], refused={"1": "nothing took it"}), made)
    assert refused[0].ratio == first.ratio and refused[1] == Finding(None, "nothing took it")
    assert live.found(told_run(failed="its passes"), made)[1] == Finding(None, "its passes")


def rates(least_s: float, *rows: tuple[int, int, int, int, int, float]) -> dict[int, float]:
    """Rates of blocks whose queue holds 8 batches."""
    return live._rates(blocks(*rows), least_s, (8, 8))


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
    ("costs", "why"),
    [
        (SLOW_START, ""),
        (Costs(0.5, 3.0, 0.1, 1000.0), "and a run takes"),
        (Costs(60.0, 70.0, 0.1, 300.0), "and 5 min of the budget is left"),
    ],
)
def test_a_live_trial_is_made_where_it_saves_time(costs: Costs, why: str) -> None:
    found = barred(plan([{"num_workers": 4}], {}, costs.step_s, 0), costs)
    assert why in found and bool(found) == bool(why)


def test_as_many_remedies_share_a_process_as_there_is_time_for() -> None:
    plans: list[Plan] = []

    def run(kept: Any, blocks: Plan) -> TrialRun:
        plans.append(blocks)
        return TrialRun(FAILED, "it ended", 1.0)

    many = [{"num_workers": number} for number in range(2, 7)]
    costs = Costs(start_s=60.0, run_s=70.0, step_s=0.5, left_s=500.0)
    found = screen(run, many, {}, {}, costs, 0)
    assert 1 < len(plans[0].candidates) < 5 and len(found) == len(plans[0].candidates)
    assert found[0] == Finding(None, "the live trial ended: it ended")


def test_without_time_for_one_remedy_no_run_is_made() -> None:
    def run(*_: Any) -> Any:
        raise AssertionError("no run is made")

    (found,) = screen(run, [{"num_workers": 4}], {}, {}, Costs(60.0, 70.0, 0.1, 300.0), 0)
    assert found.ratio is None and "of the budget is left" in found.because


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
    small = judged(WORKERS, Finding(Ratio(1.05, 0.99, 1.1, 5), "in blocks"), 10.0)
    assert small is not None and small.outcome == UNCONFIRMED and "not decided: 1.05x" in small.why
    assert judged(WORKERS, Finding(Ratio(1.05, 0.99, 1.1, 3), "in blocks"), 10.0) is None
    unclear = Ratio(1.1, 0.95, 1.3, 5)
    assert judged(WORKERS, Finding(unclear, "in blocks"), 10.0) is None
    assert undecided(unclear, "in blocks").startswith("the live trial did not decide it: 1.10x")
    assert judged(WORKERS, Finding(None, "no block"), 10.0) is None
