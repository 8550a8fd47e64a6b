"""Causes in the number and the life of workers, on planted views."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flatout.diagnose.causes.host import validating
from flatout.diagnose.causes.worker_restart import worker_restart
from flatout.diagnose.causes.workers import (
    needless_workers,
    no_workers,
    too_few_workers,
    too_many_workers,
)
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.loader_stats import FirstFetch
from flatout.measure.measured_run import MeasuredRun, Process
from flatout.measure.validation_workers import ValidationWorkers
from flatout.predict.context import Context
from flatout.remedies import propose
from flatout.results import Cause, NotMeasured, Remedy
from tests.diagnose.views import (
    BATCHES,
    COMPUTE,
    crowded,
    healthy,
    idle_worker,
    locked,
    make_ledger,
    make_view,
    remote,
    saturated,
    spread,
    starved,
    with_loader,
    without_workers,
)


def found(answer: Cause | NotMeasured | None) -> Cause:
    assert isinstance(answer, Cause), answer
    return answer


def test_fetching_in_the_training_process_is_named_with_what_workers_would_give_back() -> None:
    cause = found(no_workers(Context.of(without_workers())))
    # 50 ms a step now, 10 ms when workers do the fetching.
    assert cause.share == pytest.approx(0.8, abs=0.02)
    assert cause.evidence[0].values["num_workers"] == 0


def test_workers_on_a_single_core_that_is_full_already_give_nothing_back() -> None:
    assert no_workers(Context.of(without_workers(cores=1))) is None


def test_workers_overlap_blocked_fetches_even_on_a_single_core() -> None:
    cause = found(no_workers(Context.of(without_workers(cores=1, main_cores=0.2, cpu=0.002, blocked=0.038))))
    assert cause.share > 0.4


def test_fetching_that_takes_no_time_needs_no_workers() -> None:
    assert no_workers(Context.of(without_workers(wait=0.0002, cpu=0.0002))) is None


def test_workers_that_hand_over_longer_than_they_fetch_are_needless() -> None:
    context = Context.of(idle_worker())
    cause = found(needless_workers(context))
    # 15 ms a step now, 11 ms when the training process fetches for itself.
    assert cause.share == pytest.approx(4 / 15, abs=0.02)
    causes, _ = judge(context)
    assert causes[0].id == "needless_workers"
    assert verdict(context, causes).startswith("Workers cost more than they save: the training takes ")
    remedies, plans = propose(context, causes)
    first = remedies[0]
    assert (first.id, first.settings) == ("without_workers", {"num_workers": 0})
    assert first.gain.predicted == pytest.approx(15 / 11, rel=0.03)
    assert plans[0].gain.predicted == pytest.approx(first.gain.predicted, rel=0.03)


def test_workers_that_cost_little_more_than_they_save_are_not_named() -> None:
    """Of 15 ms a step, the training process would need 13 when it fetches for itself: at the least, 14."""
    assert needless_workers(Context.of(idle_worker(cpu=0.003, worker_idle_share=0.8))) is None


def test_workers_that_save_more_than_they_cost_are_needed() -> None:
    assert needless_workers(Context.of(idle_worker(cpu=0.006, worker_idle_share=0.6))) is None
    assert needless_workers(Context.of(without_workers())) is None


def test_a_slow_hand_over_by_busy_workers_is_no_cost_of_idle_ones() -> None:
    # A tenth of the hand-overs is quick: the worker that makes the others wait computes nine tenths of the time.
    taken_s = np.where(np.arange(BATCHES) % 10, 0.005, 0.0002)
    busy, idle = (idle_worker(worker_idle_share=share, deserialize_s=taken_s) for share in (0.1, 0.9))
    assert Context.of(busy).model.now.worker_busy_delay_s > 10 * Context.of(idle).model.now.worker_busy_delay_s


def test_few_workers_beside_free_cores_are_named() -> None:
    cause = found(too_few_workers(Context.of(starved())))
    assert cause.share == pytest.approx(0.8, abs=0.02)
    assert cause.confidence >= 0.8


def test_full_cores_are_not_called_too_few_workers() -> None:
    assert too_few_workers(Context.of(saturated())) is None


def test_workers_that_keep_up_are_not_called_too_few() -> None:
    assert too_few_workers(Context.of(healthy())) is None


def test_workers_behind_one_lock_are_not_called_too_few() -> None:
    assert too_few_workers(Context.of(locked())) is None


def test_workers_that_sleep_on_the_network_leave_room_for_more_of_them() -> None:
    assert found(too_few_workers(Context.of(remote(cores=1)))).share > 0.2


def test_few_workers_are_not_judged_where_the_cpu_time_of_fetches_is_unknown_and_cores_may_be_full() -> None:
    answer = too_few_workers(Context.of(saturated(cpu=None, runqueue=None, blocked=None, fetch=0.052)))
    assert isinstance(answer, NotMeasured)
    assert "CPU time" in answer.because


def test_skewed_batches_lower_the_confidence_in_more_workers() -> None:
    times = np.where(np.arange(200) % 10 == 0, 0.41, 0.01)
    skewed = starved(cpu=0.001, blocked=0.049, fetch_s=times, fetch_blocked_s=times - 0.001)
    assert (
        found(too_few_workers(Context.of(skewed))).confidence < found(too_few_workers(Context.of(starved()))).confidence
    )


def test_few_batches_lower_the_confidence() -> None:
    few = starved(batches=4, fetch_s=spread(0.05, 4), fetch_cpu_s=spread(0.05, 4), wait_s=spread(0.04, 4))
    assert found(too_few_workers(Context.of(few))).confidence < found(too_few_workers(Context.of(starved()))).confidence


def test_sixteen_workers_of_eight_threads_on_two_cores_are_too_many() -> None:
    cause = found(too_many_workers(Context.of(crowded())))
    assert cause.share > 0.5
    assert cause.evidence[0].values["threads"] == 8


def test_as_many_workers_as_cores_are_not_too_many() -> None:
    assert too_many_workers(Context.of(saturated())) is None


def test_workers_that_only_sleep_are_not_too_many_for_few_cores() -> None:
    assert too_many_workers(Context.of(remote(num_workers=16, cores=2))) is None


def test_workers_that_take_turns_without_losing_work_are_no_fault() -> None:
    # Four workers on two cores at exactly the rate that two cores can give: 50 ms of CPU a batch, 25 ms a step.
    view = make_view(
        wait=0.0155, busy=COMPUTE, cpu=0.050, runqueue=0.050, num_workers=4, cores=2, main_cores=0.0, usage={}
    )
    assert too_many_workers(Context.of(view)) is None


def test_too_many_workers_are_not_judged_without_run_queue_times() -> None:
    assert isinstance(too_many_workers(Context.of(crowded(runqueue=None))), NotMeasured)


def offered(view: MeasuredRun) -> dict[str, Remedy]:
    context = Context.of(view)
    return {remedy.id: remedy for remedy in propose(context, judge(context)[0])[0]}


RESTARTS: dict[str, Any] = {
    "persistent_workers": False,
    "worker_starts_in_window": 16,
    "epochs_started": 4,
    "worker_start_s": np.full(16, 0.4),
    "gaps": {"epoch_boundary": 2.0},
    "start_method": "spawn",
}


def restarting(**changes: object) -> MeasuredRun:
    return healthy(**(RESTARTS | changes))


def test_workers_started_anew_for_short_epochs_are_named_with_the_time_at_epoch_boundaries() -> None:
    cause = found(worker_restart(Context.of(restarting())))
    assert cause.share == pytest.approx(0.5, abs=0.02)
    assert "spawn" in cause.evidence[1].text


def test_what_each_new_worker_reads_at_its_first_fetch_goes_with_its_start() -> None:
    """Such as a table that the data set opens late; the training waits for that in every epoch."""
    first = FirstFetch(usual_s=0.05, mean_s=0.45, waited_s=4.0, part=0.5)
    context = Context.of(starved(**{**RESTARTS, "gaps": {"epoch_boundary": 0.1}, "first_fetch": first}))
    cause = found(worker_restart(context))
    assert cause.share == pytest.approx(4.1 / context.run.ledger.window_s, rel=0.05)
    assert "the first fetch of a new worker takes 450 ms, a usual one 50 ms" in cause.evidence[-1].text
    kept, late = (offered(run)["persistent_workers"] for run in (starved(**RESTARTS), context.run))
    assert kept.gain is not None and late.gain is not None
    assert late.gain.predicted > 1.3 * kept.gain.predicted


def test_workers_whose_starts_and_batches_take_long_are_needless_rather_than_restarted() -> None:
    """A second of starts over the window and 5 ms a batch received, for fetches of 1 ms."""
    context = Context.of(idle_worker(**(RESTARTS | {"gaps": {"epoch_boundary": 1.0}})))
    causes, _ = judge(context)
    assert [cause.id for cause in causes][:2] == ["needless_workers", "worker_restart"]
    assert "starting workers anew takes another" in causes[0].evidence[-1].text
    assert "to start and end workers" in verdict(context, causes)


def test_starts_alone_are_saved_by_kept_workers_and_fetching_without_any_is_offered_beside() -> None:
    run = restarting(wait=0.0, cpu=0.0005, gaps={"epoch_boundary": 1.0})
    assert needless_workers(Context.of(run)) is None
    without = offered(run)["without_workers"]
    assert without.gain is not None and without.gain.predicted > 1.2
    assert without.settings == {"num_workers": 0}


def test_persistent_workers_are_never_called_restarted() -> None:
    assert worker_restart(Context.of(restarting(persistent_workers=True))) is None


def validated(**changes: Any) -> MeasuredRun:
    """A fifth of the time is validation, and most of that starts workers."""
    run = healthy(**({"gaps": {"validation": 1.0}, "persistent_workers": True} | changes))
    seconds = 0.8 * run.seconds("validation")
    return replace(
        run, validation_workers=ValidationWorkers(4, seconds, 0.1 * seconds, 3, rebuilt=False, without_gradients=True)
    )


def test_workers_that_each_validation_starts_anew_are_named_in_place_of_the_validation() -> None:
    run = validated()
    cause = found(worker_restart(Context.of(run)))
    assert cause.title == "workers are started anew for every validation"
    assert cause.share == pytest.approx(0.8 * run.ledger.share("validation"))
    assert "each pass of the validation starts and ends 3 workers" in cause.evidence[0].text
    assert "over 4 passes" in cause.evidence[0].text
    left = validating(Context.of(run))
    assert left is None or found(left).share == pytest.approx(0.2 * run.ledger.share("validation"))
    kept = offered(run)["persistent_workers"]
    assert kept.settings == {"validation_workers_kept": True}
    assert kept.gain is not None
    # All of the starts, and half of the wait for the first batches.
    assert kept.gain.predicted == pytest.approx(1 / (1 - 0.84 * run.ledger.share("validation")), rel=0.01)


def test_workers_of_passes_with_gradients_are_kept_by_hand() -> None:
    run = validated()
    assert run.validation_workers is not None
    run = replace(run, validation_workers=replace(run.validation_workers, without_gradients=False))
    kept = offered(run)["persistent_workers"]
    assert not kept.settings and kept.title == "set persistent_workers=True for the validation"


def test_workers_of_both_loaders_are_one_cause() -> None:
    gaps = {"validation": 1.0, "epoch_boundary": 1.0}
    run = validated(gaps=gaps, persistent_workers=False, worker_starts_in_window=8)
    cause = found(worker_restart(Context.of(run)))
    assert cause.title == "workers are started anew for every epoch and validation"
    both = offered(run)["persistent_workers"].settings
    assert both == {"persistent_workers": True, "validation_workers_kept": True}


def test_a_restart_that_long_epochs_hide_is_no_fault() -> None:
    assert worker_restart(Context.of(restarting(gaps={"epoch_boundary": 0.02}))) is None


def test_restarts_without_measured_boundaries_are_not_judged() -> None:
    assert isinstance(worker_restart(Context.of(restarting(gaps={}))), NotMeasured)


@pytest.mark.parametrize("cause", [no_workers, too_few_workers, too_many_workers, worker_restart])
def test_without_a_loader_nothing_is_said_about_workers(cause: object) -> None:
    view = MeasuredRun(ledger=make_ledger({"forward": 0.5, "batch_wait": 0.5}), loading=None, cores=4)
    answer = cause(Context.of(view))  # type: ignore[operator]
    assert isinstance(answer, NotMeasured)
    assert "no DataLoader" in answer.because


def test_a_training_without_a_loader_that_waits_for_no_input_has_no_unmeasured_data_causes() -> None:
    view = MeasuredRun(ledger=make_ledger({"forward": 1.0}), loading=None, cores=4)
    assert not [missing for missing in judge(Context.of(view))[1] if "DataLoader" in missing.because]


def test_input_that_comes_from_no_loader_is_a_cause_with_its_share() -> None:
    view = MeasuredRun(ledger=make_ledger({"forward": 0.6, "batch_wait": 0.4}), loading=None, cores=4)
    cause = judge(Context.of(view))[0][0]
    assert (cause.id, round(cause.share, 2)) == ("own_input", 0.4)


def test_where_loaders_could_not_be_timed_input_is_not_said_to_come_from_none() -> None:
    process = Process(untimed={"loaders": "NotInstrumented: gone"})
    view = MeasuredRun(ledger=make_ledger({"forward": 0.6, "batch_wait": 0.4}), loading=None, cores=4, process=process)
    causes, not_measured = judge(Context.of(view))
    assert "own_input" not in [cause.id for cause in causes]
    assert [one.because for one in not_measured if one.id == "own_input"] == [
        "a DataLoader could not be timed here (NotInstrumented: gone)"
    ]


def test_a_loader_that_is_built_anew_keeps_no_workers_by_a_setting() -> None:
    view = restarting()
    anew = with_loader(view, rebuilt=True)
    usual, moved = (offered(v)["persistent_workers"] for v in (view, anew))
    assert usual.settings == {"persistent_workers": True}
    assert not moved.settings
    assert "before the loop" in moved.how
