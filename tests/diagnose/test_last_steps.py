"""Causes, predictions and remedies of runs whose last steps measured ceilings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.causes import HEALTHY
from flatout.diagnose.causes.device import small_batch
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.experiments import Experiments
from flatout.measure.last_steps import Doubled, LastSteps, Replayed
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.ranks import Ranks
from flatout.predict.context import Context
from flatout.predict.device_memory import device_memory
from flatout.predict.pipeline import Change
from flatout.predict.whatif import Wanted
from flatout.remedies import propose
from flatout.results import Cause, NotMeasured
from tests.diagnose.views import (
    COMPUTE,
    LINE,
    healthy,
    idle_worker,
    locked,
    saturated,
    small_operators,
    starved,
    without_workers,
)


def replayed(step_s: float, idle: bool = True) -> Replayed:
    return Replayed(step_s, 0.97 * step_s, 1.03 * step_s, 5, 8, idle)


def doubled(fixed: float, step_s: float = 0.010, **changes: Any) -> Doubled:
    usual = Doubled(32, step_s, step_s * (2 - fixed), fixed, max(fixed - 0.05, 0.0), min(fixed + 0.05, 1.0))
    return replace(usual, **changes)


def run(view: MeasuredRun, **found: Any) -> Context:
    return Context.of(replace(view, last_steps=LastSteps(**found)))


# --- the device's ceiling ---


def test_threads_that_spin_while_they_wait_need_no_core() -> None:
    # Both threads are busy all the time, and a step with nothing beside it takes a fifth of it.
    view = starved(cores=2, main_cores=2.0, process={"threads": 2})
    spinning = run(view).model
    known = run(view, replayed=replayed(0.010)).model
    assert spinning.now.main_cpu_s == pytest.approx(0.100)
    assert known.now.main_cpu_s == pytest.approx(2 * (0.010 + known.now.handover_s))
    # 0.050 s of fetching and 0.020 s of computing on two cores.
    assert known.factor(Change(num_workers=8)) == pytest.approx(0.050 / 0.035, rel=0.03)
    assert known.factor(Change(num_workers=8)) > spinning.factor(Change(num_workers=8))


@pytest.mark.parametrize(
    ("view", "found"),
    [
        (starved(main_cores=2.0, uses_gpu=True), replayed(0.010)),
        (starved(main_cores=2.0), replayed(0.010, idle=False)),
        (without_workers(main_cores=2.8, cores=4), replayed(0.010)),  # 40 ms of it fetch
    ],
)
def test_what_the_training_computes_is_taken_as_measured_where_no_ceiling_bounds_it(
    view: MeasuredRun, found: Replayed
) -> None:
    assert run(view, replayed=found).model.now.main_cpu_s == pytest.approx(0.100)


@pytest.mark.parametrize("view", [starved(), without_workers(), starved(uses_gpu=True)])
def test_no_change_of_the_input_is_predicted_to_exceed_steps_with_their_input_there(view: MeasuredRun) -> None:
    # 50 ms now, 10 of them in the step as far as the window shows; replayed, a step takes 25 ms.
    context = run(replace(view, uses_gpu=True), replayed=replayed(0.025))
    gain = context.model.gain(Change(num_workers=8, fetch_cpu_factor=0.01))
    assert gain.predicted == pytest.approx(2.0, rel=0.02)
    assert gain.high == pytest.approx(2.0 / 0.97, rel=0.02)


def test_the_simulated_queue_is_bounded_too() -> None:
    context = run(starved(uses_gpu=True), replayed=replayed(0.025))
    assert context.whatif is not None
    gain = context.whatif.gain(Wanted(num_workers=8))
    assert gain.predicted == pytest.approx(2.0, rel=0.05) and gain.high <= 2.0 / 0.97 * 1.001


def test_where_replayed_steps_take_as_long_no_remedy_of_the_input_is_shown() -> None:
    context = run(starved(uses_gpu=True), replayed=replayed(0.051))
    causes, _ = judge(context)
    assert propose(context, causes)[0] == ()
    assert verdict(context, causes) == (
        "The GPU waits 80% of the time for batches, yet a step takes as long with its batch already there: "
        "no change of the input would make it faster."
    )
    assert propose(plain := Context.of(starved(uses_gpu=True)), judge(plain)[0])[0]


def test_a_wait_that_steps_with_their_batch_there_keep_is_no_fault() -> None:
    # 20% of the time is waited for batches.
    waiting = starved(uses_gpu=True, wait=0.010, busy={"forward": 0.040}, cpu=0.050)
    assert not [one for one in judge(Context.of(waiting))[0] if one.id == HEALTHY]
    causes, _ = judge(run(waiting, replayed=replayed(0.048)))
    assert causes[0].id == HEALTHY
    assert not [one for one in judge(run(waiting, replayed=replayed(0.040)))[0] if one.id == HEALTHY]


def test_a_cause_of_the_wait_that_the_replayed_steps_contradict_loses_share_and_confidence() -> None:
    before = next(one for one in judge(Context.of(locked(uses_gpu=True)))[0] if one.id == "lock_contention")
    after = next(
        one for one in judge(run(locked(uses_gpu=True), replayed=replayed(0.045)))[0] if one.id == "lock_contention"
    )
    assert before.share > 0.7 and after.share == pytest.approx(1 - 0.97 * 0.045 / 0.050, abs=0.01)
    assert after.confidence == pytest.approx(0.5 * before.confidence, abs=0.01)


def test_on_the_cpu_a_busier_machine_afterwards_shows_nothing() -> None:
    # The step without its wait takes 10 ms in the window: 40 ms afterwards are the machine's doing.
    gain = run(starved(), replayed=replayed(0.040)).model.gain(Change(num_workers=8))
    assert gain.predicted == pytest.approx(5.0, rel=0.05)


def test_steps_that_were_not_measured_say_why() -> None:
    causes, _ = judge(run(starved(), skipped={"replayed": "only 12 batches of the pass were left"}))
    assert causes[0].evidence[-1].text == (
        "steps with the input already there were not measured: only 12 batches of the pass were left"
    )


def test_steps_beside_busy_workers_bound_nothing() -> None:
    context = run(starved(uses_gpu=True), replayed=replayed(0.045, idle=False))
    assert context.model.gain(Change(num_workers=8)).predicted == pytest.approx(5.0, rel=0.05)
    few = next(one for one in judge(context)[0] if one.id == "too_few_workers")
    assert any("though workers were still fetching" in one.text for one in few.evidence)


def test_evidence_and_basis_say_what_was_measured() -> None:
    context = run(starved(), replayed=replayed(0.010), loader_bps=21.0, again_bps=60.0)
    causes, _ = judge(context)
    texts = [one.text for one in causes[0].evidence]
    measured = "measured after the window: with the input already there a step takes 10 ms (9.7 ms to 10 ms), now 50 ms"
    assert measured in texts
    alone = "the loader alone, while nothing computed, made 21.0 new batches a second, 60.0 of the same ones again"
    assert alone in texts
    workers = next(one for one in propose(context, causes)[0] if one.id == "num_workers")
    assert measured in workers.basis


def test_a_faster_step_is_bounded_by_the_loader_alone() -> None:
    # Workers have not been waited for: without a measurement their supply is what the formula says.
    change = Change(step_removed_s=0.0095)
    view = healthy(cpu=0.004, num_workers=1)
    assert Context.of(view).model.gain(change).predicted > 2.2
    assert run(view, loader_bps=125.0).model.gain(change).predicted == pytest.approx(1.25, rel=0.05)


# --- twice the batch ---


def found(answer: Cause | NotMeasured | None) -> Cause:
    assert isinstance(answer, Cause), answer
    return answer


def test_a_small_batch_is_known_from_two_batch_sizes() -> None:
    cause = found(small_batch(run(healthy(cpu=0.001), replayed=replayed(0.010), doubled=doubled(0.6))))
    assert cause.share == pytest.approx(0.6, abs=0.03)
    assert cause.evidence[0].text == (
        "measured after the window: a step takes 10 ms with 32 samples and 14 ms with twice as many: "
        "60% of it (55% to 65%) does not grow with the batch; batch size 32"
    )


def test_of_passes_apart_from_the_steps_only_what_is_certain_counts_for_many_samples() -> None:
    apart = doubled(0.6, fixed_low=0.4, passes=True)
    assert found(small_batch(run(healthy(cpu=0.001), doubled=apart))).share == pytest.approx(0.4, abs=0.03)
    few = replace(apart, samples=1.0)
    assert found(small_batch(run(healthy(cpu=0.001), doubled=few))).share == pytest.approx(0.6, abs=0.03)
    unsure = replace(apart, fixed_low=0.3)
    assert small_batch(run(healthy(cpu=0.001), doubled=unsure)) is None


def test_an_optimizer_that_takes_most_of_the_fixed_cost_is_named_with_its_line() -> None:
    by_hand = healthy(cpu=0.001, busy=COMPUTE | {"optimizer": 0.008}, lines={"optimizer": LINE})
    context = run(by_hand, doubled=doubled(0.8, 0.017, fixed_low=0.7, samples=8.0, passes=True))
    causes, _ = judge(context)
    assert causes[0].id == "small_batch"
    assert verdict(context, causes).endswith("of the time, the optimizer's step alone 46% (train.py:12).")


def test_where_there_is_no_loader_the_proposal_says_where_to_take_more_samples() -> None:
    own = replace(healthy(cpu=0.001), loading=None)
    context = run(own, doubled=doubled(0.6, fixed_low=0.5, samples=8.0, passes=True))
    causes, _ = judge(context)
    assert causes[0].id == "small_batch"
    (remedy,) = (one for one in propose(context, causes)[0] if one.id == "bigger_batch")
    assert remedy.title == "raise the batch size from 8 to 16" and remedy.settings == {}
    assert remedy.gain.predicted > 1.3


def test_the_measurement_overrules_the_guess_from_one_size() -> None:
    busy = {"forward": 0.001, "backward": 0.002, "optimizer": 0.006}
    view = healthy(cpu=0.008, busy=busy)
    assert isinstance(small_batch(Context.of(view)), Cause)
    assert small_batch(run(view, replayed=replayed(0.009), doubled=doubled(0.1))) is None


def test_blocks_that_disagree_show_no_small_batch() -> None:
    one = doubled(0.4, fixed_low=0.0, fixed_high=0.9)
    assert small_batch(run(healthy(cpu=0.001), replayed=replayed(0.010), doubled=one)) is None


def test_what_other_causes_name_is_no_fault_of_the_batch() -> None:
    own = healthy(cpu=0.001, busy=COMPUTE | {"host_other": 0.010})
    assert small_batch(run(own, replayed=replayed(0.020), doubled=doubled(0.5, 0.020))) is None
    hooked = replace(healthy(cpu=0.001), experiments=Experiments(hooks_share=0.4, steps=56))
    assert small_batch(run(hooked, replayed=replayed(0.010), doubled=doubled(0.5))) is None
    launching = replace(healthy(cpu=0.001), operators=small_operators(0.005))
    assert small_batch(run(launching, replayed=replayed(0.010), doubled=doubled(0.6))) is None
    few = doubled(0.6, samples=1.0)
    assert found(small_batch(run(launching, replayed=replayed(0.010), doubled=few))).share > 0.5


def test_a_batch_that_was_not_doubled_says_why() -> None:
    answer = small_batch(run(healthy(), skipped={"doubled": "it raised RuntimeError: shapes"}))
    assert isinstance(answer, NotMeasured)
    assert answer.because.endswith("(no batch was doubled: it raised RuntimeError: shapes)")


def test_a_larger_batch_saves_what_was_measured_to_be_fixed() -> None:
    context = run(healthy(cpu=0.001), replayed=replayed(0.010), doubled=doubled(0.6))
    causes, _ = judge(context)
    bigger = next(one for one in propose(context, causes)[0] if one.id == "bigger_batch")
    assert bigger.gain.predicted == pytest.approx(1 / 0.7, rel=0.06)
    assert bigger.gain.low > 1.2
    assert "60% of it (55% to 65%) does not grow with the batch" in bigger.basis


@pytest.mark.parametrize(
    ("size", "fixed", "samples", "wanted"),
    [
        (4, 0.6, None, 16),
        (4, 0.85, None, 32),
        (4, 0.4, None, 8),  # a third of a step is left with twice the batch
        (32, 0.85, None, 64),
        (64, 0.85, None, 128),
        (4, 0.85, 300, 8),  # an epoch of 16 would have 18 steps
    ],
)
def test_a_small_batch_is_raised_until_its_fixed_cost_is_shared(
    size: int, fixed: float, samples: int | None, wanted: int
) -> None:
    view = healthy(cpu=0.001, process={"optimizer": "AdamW"})
    assert view.loading is not None
    settings = replace(view.loading.settings, batch_size=size, dataset_len=samples)
    view = replace(view, loading=replace(view.loading, settings=settings))
    context = run(view, replayed=replayed(0.010), doubled=doubled(fixed, samples=float(size)))
    causes, _ = judge(context)
    (bigger,) = (one for one in propose(context, causes)[0] if one.id == "bigger_batch")
    factor = wanted / size
    assert bigger.settings == {"batch_size": wanted, "lr_factor": pytest.approx(factor**0.5)}
    assert bigger.gain.predicted == pytest.approx(1 / (1 - fixed * (1 - 1 / factor)), rel=0.1)


def test_a_wait_for_batches_is_no_small_batch() -> None:
    assert small_batch(run(saturated(), replayed=replayed(0.010), doubled=doubled(0.9))) is None


def test_the_time_to_hand_a_batch_over_hides_no_small_batch() -> None:
    cause = found(small_batch(run(idle_worker(), replayed=replayed(0.010), doubled=doubled(0.9))))
    assert cause.share == pytest.approx(0.6, abs=0.03)  # 9 of 15 ms


def test_a_wait_for_other_ranks_is_no_small_batch() -> None:
    """This rank does not grow with its batch, since it waits for the other one all the same."""
    view = replace(healthy(cpu=0.001), ranks=Ranks(2, 100, 1, 0, 1.0, 0.6, "computes", 0.55, 0.001))
    assert small_batch(run(view, replayed=replayed(0.010), doubled=doubled(0.6))) is None


def test_the_memory_of_a_larger_batch_follows_the_measured_slope() -> None:
    usage = {"gpu_memory_used_bytes": 8 << 30, "gpu_memory_total_bytes": 24 << 30, "device_busy_share": 0.9}
    view = healthy(uses_gpu=True, usage=usage, process={"param_bytes": 100 << 20})
    guessed = device_memory(view)
    measured = device_memory(run(view, doubled=doubled(0.1, bytes_per_sample=float(64 << 20))).run)
    assert guessed is not None and measured is not None
    low, high = measured.at(64)
    assert low == pytest.approx(10 << 30, rel=0.001) and high == pytest.approx(10.4 * (1 << 30), rel=0.01)
    assert high - low < guessed.at(64)[1] - guessed.at(64)[0]


def test_waiting_for_a_late_rank_is_no_fault_of_the_batch() -> None:
    """A step that waits for another rank costs the same with a batch of twice the size."""
    ranks = Ranks(2, 100, 1, 0, 1.0, 0.27, "computes", 0.02, 0.001)
    view = replace(healthy(cpu=0.001), ranks=ranks)
    causes, _ = judge(run(view, doubled=doubled(0.95)))
    assert [cause.id for cause in causes][:2] == ["rank_straggler", "small_batch"]
    alone, _ = judge(run(replace(view, ranks=replace(ranks, waited_share=0.1)), doubled=doubled(0.95)))
    assert alone[0].id == "small_batch"
