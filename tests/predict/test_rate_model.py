"""Predictions: what limits a run, and what cannot help it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.measure.last_steps import LastSteps, Replayed
from flatout.measure.measured_run import MeasuredRun, Usage
from flatout.predict.pipeline import Change, Pipeline
from flatout.predict.rate_model import RateModel, fit
from tests.diagnose.views import (
    COMPUTE,
    SAMPLES,
    crowded,
    healthy,
    locked,
    make_ledger,
    make_view,
    remote,
    saturated,
    spread,
    starved,
    without_workers,
)


def model_of(view: MeasuredRun) -> RateModel:
    model = fit(view)
    assert model is not None
    return model


ALL = {
    "starved": starved,
    "saturated": saturated,
    "remote": remote,
    "healthy": healthy,
    "crowded": crowded,
    "locked": locked,
    "without_workers": without_workers,
}


@pytest.mark.parametrize("name", ["starved", "saturated", "remote", "crowded", "locked", "without_workers"])
def test_the_model_reproduces_the_measured_rate(name: str) -> None:
    view = ALL[name]()
    assert model_of(view).now.rate_sps() == pytest.approx(view.ledger.steps.rate_sps, rel=0.02)


def test_more_workers_on_full_cores_predict_no_change() -> None:
    gain = model_of(saturated()).gain(Change(num_workers=8))
    assert gain.predicted == pytest.approx(1.0, abs=0.05)
    assert gain.high < 1.15


def test_more_workers_predict_no_change_where_the_run_queue_shows_that_the_cores_are_full() -> None:
    # Eight cores are listed, but others use them: the fetches wait for a core half of their time.
    view = starved(runqueue=0.050, wait=0.090, num_workers=1)
    assert model_of(view).gain(Change(num_workers=4)).predicted == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", ["starved", "saturated", "remote", "locked"])
def test_a_faster_device_predicts_no_change_for_a_starved_run(name: str) -> None:
    gain = model_of(ALL[name]()).gain(Change(step_removed_s=0.008))
    assert gain.predicted == pytest.approx(1.0, abs=0.02)
    assert gain.high < 1.1


def test_more_workers_predict_no_change_behind_a_lock() -> None:
    assert model_of(locked()).factor(Change(num_workers=16)) == pytest.approx(1.0, abs=0.02)


def test_more_workers_predict_no_change_for_a_run_that_does_not_wait() -> None:
    assert model_of(healthy()).factor(Change(num_workers=16)) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", list(ALL))
def test_more_workers_never_predict_less(name: str) -> None:
    model = model_of(ALL[name]())
    first = max(model.now.num_workers, 1)
    factors = [model.factor(Change(num_workers=workers)) for workers in range(first, first + 12)]
    assert factors == sorted(factors)


def test_the_training_step_bounds_what_workers_can_give() -> None:
    factor = model_of(starved()).factor(Change(num_workers=100))
    assert factor == pytest.approx(5.0, rel=0.02)


def test_the_cores_bound_what_workers_can_give() -> None:
    # 50 ms of CPU a batch, 1 ms of it in the training process: 3 cores give 3 / 51 ms.
    view = starved(cores=3, main_cores=0.02)
    factor = model_of(view).factor(Change(num_workers=100))
    assert factor == pytest.approx(3 / 0.051 * 0.050, rel=0.03)


def test_a_training_on_the_same_cores_leaves_less_for_workers() -> None:
    alone = model_of(without_workers(cores=2, main_cores=0.9))
    # Two busy threads while it computes: 40 ms of fetching and 2 x 10 ms of training on 2 cores.
    shared = model_of(without_workers(cores=2, main_cores=(0.040 + 0.020) / 0.050))
    assert shared.factor(Change(num_workers=8)) == pytest.approx(0.050 / 0.030, rel=0.03)
    assert shared.factor(Change(num_workers=8)) < alone.factor(Change(num_workers=8))


def test_a_single_worker_that_waits_for_neighbours_is_not_taken_for_full_cores() -> None:
    given = {"runqueue": 0.020, "wait": 0.060, "cores": 2}
    beside = starved(**given, usage={"other_cores": 1.2, "online_cores": 2, "main_cores": 0.1})
    assert 1.05 < model_of(beside).factor(Change(num_workers=2)) < 2
    assert model_of(starved(**given)).factor(Change(num_workers=2)) == pytest.approx(1.0, abs=0.02)


def test_other_processes_take_cores_from_the_workers() -> None:
    view = starved(cores=4, usage={"other_cores": 2.5, "online_cores": 4, "main_cores": 0.1})
    quiet = starved(cores=4, usage={"other_cores": 0.0, "online_cores": 4, "main_cores": 0.1})
    more = Change(num_workers=8)
    assert model_of(view).factor(more) < model_of(quiet).factor(more)
    # They may end at any time: what the run would gain then is inside the interval.
    assert model_of(view).gain(more).high >= model_of(quiet).gain(more).predicted
    assert any("other processes" in text for text in model_of(view).assumptions)


@given(share=st.floats(0.05, 0.9))
def test_removing_a_share_of_a_run_that_does_not_wait_gives_at_most_what_its_share_allows(share: float) -> None:
    busy = {"forward": 0.010 * (1 - share), "logging": 0.010 * share}
    view = make_view(wait=0.0, busy=busy, cpu=0.001, num_workers=8)
    factor = model_of(view).factor(Change(step_removed_s=0.010 * share))
    assert 1.0 <= factor <= 1 / (1 - share) + 1e-6


def test_removing_time_between_steps_gives_its_share_back_even_to_a_starved_run() -> None:
    view = starved(gaps={"validation": 10.0})
    assert model_of(view).factor(Change(between_steps_removed_s=10.0 / 200)) == pytest.approx(2.0, rel=0.01)


def test_what_a_step_loses_varies_with_the_steps_in_which_it_was_measured() -> None:
    # A few steps were held up for long: a resampled run with none of them would have no time left.
    uneven = np.where(np.arange(26) % 13 == 0, 0.100, 0.003)
    view = healthy(cpu=0.001, batches=26, whole_step_s=uneven, wait_s=np.full(26, 0.0003))
    gain = model_of(view).gain(Change(step_removed_s=0.8 * 0.010))
    assert gain.predicted == pytest.approx(5.0, rel=0.01) and gain.high < 10


@pytest.mark.parametrize("name", list(ALL))
@pytest.mark.parametrize(
    "change",
    [
        Change(num_workers=6),
        Change(fetch_cpu_factor=0.3),
        Change(fetch_blocked_factor=0.1),
        Change(step_removed_s=0.005),
        Change(),
    ],
)
def test_intervals_contain_the_prediction(name: str, change: Change) -> None:
    gain = model_of(ALL[name]()).gain(change)
    assert 0 < gain.low <= gain.predicted <= gain.high
    assert all(map(math.isfinite, (gain.low, gain.predicted, gain.high)))


def test_no_change_predicts_exactly_one() -> None:
    assert model_of(remote()).factor(Change()) == pytest.approx(1.0)


def test_the_interval_is_wider_where_fewer_batches_were_seen() -> None:
    def width(batches: int) -> float:
        given = {name: spread(s, batches) for name, s in {"fetch_s": 0.05, "fetch_cpu_s": 0.05, "wait_s": 0.04}.items()}
        gain = model_of(starved(batches=batches, **given)).gain(Change(num_workers=4))
        return gain.high / gain.low

    assert width(5) > width(200)


def test_the_interval_is_wider_where_the_cpu_time_of_a_fetch_was_assumed() -> None:
    known = model_of(starved()).gain(Change(num_workers=4))
    assumed_model = model_of(starved(cpu=None, runqueue=None, blocked=None, fetch=0.050))
    assumed = assumed_model.gain(Change(num_workers=4))
    assert assumed.high / assumed.low > known.high / known.low
    assert any("all CPU time" in text for text in assumed_model.assumptions)


def test_predictions_are_the_same_each_time() -> None:
    change = Change(num_workers=4)
    assert model_of(starved()).gain(change) == model_of(starved()).gain(change)


def test_assumed_cpu_use_of_a_training_on_the_cpu_counts_its_threads() -> None:
    view = replace(starved(process={"threads": 4}), usage=Usage())
    assert model_of(view).now.main_cpu_s == pytest.approx(4 * 0.010, rel=0.01)
    assert model_of(replace(view, uses_gpu=True)).now.main_cpu_s == pytest.approx(0.010, rel=0.01)


def test_a_run_without_steps_has_no_model() -> None:
    view = starved()
    empty = replace(view.ledger, steps=replace(view.ledger.steps, count=0))
    assert fit(MeasuredRun(ledger=empty, loading=None, cores=2)) is None


def test_a_run_without_a_loader_is_modelled_by_its_steps() -> None:
    model = model_of(MeasuredRun(ledger=make_ledger({"forward": 1.0, "logging": 1.0}), loading=None, cores=2))
    assert model.factor(Change(step_removed_s=1.0 / model.batches)) == pytest.approx(2.0)


@given(
    workers=st.integers(1, 16),
    cpu=st.floats(1e-4, 0.5),
    blocked=st.floats(0, 0.5),
    busy=st.floats(1e-3, 0.5),
    wait=st.floats(0, 0.5),
    cores=st.floats(0.5, 64),
)
def test_whatever_was_measured_the_rate_stays_below_each_limit(
    workers: int, cpu: float, blocked: float, busy: float, wait: float, cores: float
) -> None:
    pipeline = Pipeline(
        num_workers=workers,
        samples=SAMPLES,
        total_s=busy + wait,
        wait_s=wait,
        fetch_cpu_s=cpu,
        fetch_blocked_s=blocked,
        worker_cpu_s=cpu,
        cores=cores,
    ).calibrated()
    for change in (Change(), Change(num_workers=2 * workers), Change(fetch_cpu_factor=0.5)):
        after = pipeline.changed(change)
        assert 0 < after.rate_sps() <= SAMPLES * min(after.limits().values()) * (1 + 1e-9)
        assert after.rate_sps() >= pipeline.rate_sps() * (1 - 1e-9)


def test_compute_time_is_in_the_step_however_it_is_divided() -> None:
    assert model_of(starved(busy={"forward": 0.010})).now.step_s == pytest.approx(sum(COMPUTE.values()), rel=1e-6)


def test_a_step_that_queues_behind_the_workers_gets_quicker_when_they_compute_less() -> None:
    """Two cores, full: half of the step's 10 ms is waiting for a core that the workers have."""
    given = {"wait": 0.001, "busy": COMPUTE, "cpu": 0.018, "num_workers": 2, "cores": 2, "main_cores": 0.45}
    alone, queued = make_view(**given), make_view(**given, usage={"main_runqueue_share": 0.45})
    change = Change(fetch_cpu_factor=0.1)
    assert model_of(alone).factor(change) < 1.15
    assert model_of(queued).factor(change) == pytest.approx(1.8, abs=0.2)
    assert model_of(queued).now.rate_sps() == pytest.approx(model_of(alone).now.rate_sps())
    assert model_of(queued).factor(Change(num_workers=4)) <= 1.05
    others = make_view(**given, usage={"main_runqueue_share": 0.45, "other_cores": 2.0})
    assert model_of(others).factor(change) < model_of(queued).factor(change)


def test_threads_that_spin_for_one_another_wait_for_the_workers_too() -> None:
    """A step of 10 ms takes 5 ms with its batch there: the workers' 18 ms of CPU time have the cores meanwhile."""
    given = {"wait": 0.0005, "busy": COMPUTE, "cpu": 0.018, "num_workers": 2, "cores": 2, "main_cores": 0.95}
    there = LastSteps(replayed=Replayed(step_s=0.005, low_s=0.005, high_s=0.0055, blocks=5, steps=4))
    view = replace(make_view(**given, process={"threads": 2}), last_steps=there)
    assert model_of(view).now.core_wait_share == pytest.approx(0.45, abs=0.05)
    assert model_of(view).factor(Change(fetch_cpu_factor=0.1)) > 1.5
    # While they spin they hold their cores, which more workers do not get.
    now = model_of(replace(make_view(**{**given, "main_cores": 1.8}, process={"threads": 2}), last_steps=there)).now
    assert now.spun_s == pytest.approx(now.main_runqueue_s) and now.spinning_cpu_s == pytest.approx(0.009, abs=1e-3)
    assert now.changed(Change(num_workers=3)).main_cpu_s == pytest.approx(now.main_cpu_s + now.spinning_cpu_s)
    assert now.changed(Change(num_workers=1)).main_cpu_s == pytest.approx(now.main_cpu_s)
    for other in (
        replace(view, last_steps=LastSteps()),
        replace(view, cores=4.0),
        replace(view, uses_gpu=True),
        replace(view, last_steps=replace(there, replayed=replace(there.replayed, idle=False))),
    ):
        assert model_of(other).now.core_wait_share == 0.0


@pytest.mark.parametrize(("replayed_s", "left_s"), [(0.0, 0.060), (0.024, 0.024), (0.090, 0.060)])
def test_a_step_that_fetching_in_its_process_slows_is_as_long_as_alone_without(
    replayed_s: float, left_s: float
) -> None:
    pipeline = Pipeline(
        num_workers=0, samples=SAMPLES, total_s=0.113, wait_s=0.053, fetch_cpu_s=0.053, replayed_step_s=replayed_s
    )
    assert pipeline.changed(Change(fetch_cpu_factor=0.0)).step_s == pytest.approx(left_s)
    half = pipeline.changed(Change(fetch_cpu_factor=0.5))
    assert half.step_s == pytest.approx((0.060 + left_s) / 2)
    # Workers compute beside the step: what they slow down is another question.
    assert pipeline.changed(Change(num_workers=1)).step_s == pytest.approx(0.060)
