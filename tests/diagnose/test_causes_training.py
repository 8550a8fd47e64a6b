"""Causes in the training process and on the device, on planted views."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.causes.device import compute_bound, device_sync, small_batch
from flatout.diagnose.causes.host import checkpoint, main_process_work, validating, writing_logs
from flatout.diagnose.ranking import judge
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.ranks import Ranks
from flatout.predict.context import Context
from flatout.remedies import propose
from flatout.results import Cause, NotMeasured, Remedy
from tests.diagnose.views import COMPUTE, LINE, healthy, starved


def found(answer: Cause | NotMeasured | None) -> Cause:
    assert isinstance(answer, Cause), answer
    return answer


def less_often(view: MeasuredRun, cause: str) -> Remedy:
    """The remedy that does what holds the training up half as often."""
    context = Context.of(view)
    offered, _ = propose(context, judge(context)[0])
    return next(one for one in offered if one.cause == cause and "half as often" in one.title)


def test_code_between_the_phases_is_named_with_its_hottest_line() -> None:
    view = healthy(busy=COMPUTE | {"host_other": 0.010}, lines={"host_other": LINE})
    cause = found(main_process_work(Context.of(view)))
    assert cause.share == pytest.approx(0.49, abs=0.02)
    assert "train.py:12" in cause.evidence[1].text


def test_code_between_the_phases_costs_nothing_while_batches_are_awaited() -> None:
    assert main_process_work(Context.of(starved(busy=COMPUTE | {"host_other": 0.010}))) is None


def test_logging_is_named_and_told_from_other_code() -> None:
    view = healthy(busy=COMPUTE | {"logging": 0.005})
    assert found(writing_logs(Context.of(view))).share == pytest.approx(0.33, abs=0.02)
    assert main_process_work(Context.of(view)) is None


def test_a_little_logging_is_no_fault() -> None:
    assert writing_logs(Context.of(healthy(busy=COMPUTE | {"logging": 0.0002}))) is None


def test_checkpoints_count_fully_even_in_a_starved_run() -> None:
    cause = found(checkpoint(Context.of(replace(starved(gaps={"checkpoint": 10.0}), checkpoints=4))))
    assert cause.share == pytest.approx(0.5)
    assert "4 writes of 2.5 s" in cause.evidence[0].text


def test_frequent_validation_is_named() -> None:
    cause = found(validating(Context.of(replace(healthy(gaps={"validation": 2.0}), validations=2))))
    assert cause.share == pytest.approx(0.5, abs=0.02)
    assert "2 passes" in cause.evidence[0].text


@pytest.mark.parametrize(
    ("account", "times", "judged"),
    [("validation", "validations", validating), ("checkpoint", "checkpoints", checkpoint)],
)
def test_what_was_seen_once_may_come_no_more(account: str, times: str, judged: Any) -> None:
    view = replace(healthy(gaps={account: 2.0}), **{times: 1})
    cause = found(judged(Context.of(view)))
    assert cause.confidence == 0.5 and "seen once: how often it comes" in cause.evidence[1].text
    usual = replace(view, **{times: 2})
    assert found(judged(Context.of(usual))).confidence == 0.9
    rare_gain, usual_gain = (less_often(one, account).gain for one in (view, usual))
    assert rare_gain.low <= 1.0 < usual_gain.low and rare_gain.predicted == usual_gain.predicted


def test_usual_validation_is_no_fault() -> None:
    assert validating(Context.of(healthy(gaps={"validation": 0.15}))) is None


def test_work_on_parameters_that_exceeds_work_on_samples_shows_a_small_batch() -> None:
    cause = found(
        small_batch(Context.of(healthy(cpu=0.008, busy={"forward": 0.001, "backward": 0.002, "optimizer": 0.006})))
    )
    assert cause.share == pytest.approx(6 / 9, abs=0.03)


def test_a_larger_batch_gives_no_more_than_the_workers_can_fetch() -> None:
    # A batch arrives each 5 ms at best, now there is a step each 9 ms.
    cause = found(
        small_batch(Context.of(healthy(cpu=0.020, busy={"forward": 0.001, "backward": 0.002, "optimizer": 0.006})))
    )
    assert cause.share == pytest.approx(1 - 5 / 9, abs=0.03)


def test_one_batch_size_does_not_tell_the_fixed_cost_of_forward_and_backward() -> None:
    answer = small_batch(Context.of(healthy()))
    assert isinstance(answer, NotMeasured)
    assert "one size" in answer.because


def test_a_larger_batch_is_no_answer_to_missing_data() -> None:
    assert small_batch(Context.of(starved(busy={"forward": 0.001, "optimizer": 0.009}))) is None


def test_a_gpu_that_outruns_its_launches_shows_a_small_batch() -> None:
    view = healthy(uses_gpu=True, usage={"device_busy_share": 0.4})
    assert found(small_batch(Context.of(view))).share > 0.5
    assert small_batch(Context.of(healthy(uses_gpu=True, usage={"device_busy_share": 0.97}))) is None


def test_on_a_gpu_whose_busy_time_is_unknown_the_batch_is_not_judged() -> None:
    assert isinstance(small_batch(Context.of(healthy(uses_gpu=True))), NotMeasured)


def test_reads_beside_an_idle_gpu_are_named_with_file_and_line() -> None:
    busy = COMPUTE | {"device_sync": 0.010}
    view = healthy(busy=busy, uses_gpu=True, usage={"device_busy_share": 0.6}, lines={"device_sync": LINE})
    cause = found(device_sync(Context.of(view)))
    assert 0.3 < cause.share <= 0.4
    assert "train.py:12" in cause.evidence[1].text


@pytest.mark.parametrize(("times", "of_reads"), [(2.0, True), (9.0, False)])
def test_what_a_line_computes_beside_its_reads_goes_with_them(times: float, of_reads: bool) -> None:
    """After each read the GPU has nothing to do; a line that writes a picture is the training process's work."""
    reads, own = replace(LINE, seconds=0.1), replace(LINE, seconds=0.1 * times)
    busy = COMPUTE | {"device_sync": 0.004, "host_other": 0.006}
    lines = {"device_sync": reads, "host_other": own}
    view = healthy(busy=busy, uses_gpu=True, usage={"device_busy_share": 0.45}, lines=lines)
    idle = 1 - 0.45 - view.ledger.share("batch_wait") - view.ledger.share("host_other")
    beside = own.seconds / view.ledger.window_s if of_reads else 0.0
    cause = found(device_sync(Context.of(view)))
    assert cause.share == pytest.approx(min(view.ledger.share("device_sync"), idle) + beside)
    host = found(main_process_work(Context.of(view)))
    assert any("train.py:12" in one.text for one in host.evidence) is not of_reads


def test_reads_that_only_wait_for_a_busy_gpu_lose_nothing() -> None:
    busy = COMPUTE | {"device_sync": 0.040}
    assert device_sync(Context.of(healthy(busy=busy, uses_gpu=True, usage={"device_busy_share": 0.98}))) is None


def test_device_reads_are_not_judged_on_a_cpu_or_without_the_busy_time() -> None:
    on_cpu = device_sync(Context.of(healthy()))
    assert isinstance(on_cpu, NotMeasured)
    assert "asynchronous" in on_cpu.because
    assert isinstance(
        device_sync(Context.of(healthy(busy=COMPUTE | {"device_sync": 0.01}, uses_gpu=True))), NotMeasured
    )


def test_a_run_that_computes_and_does_not_wait_is_healthy() -> None:
    assert found(compute_bound(Context.of(healthy()))).share > 0.95


def test_a_starved_run_is_not_healthy() -> None:
    assert compute_bound(Context.of(starved())) is None


def test_a_gpu_that_the_host_waits_for_in_reads_is_healthy() -> None:
    busy = {"forward": 0.001, "backward": 0.001, "optimizer": 0.001, "device_sync": 0.02}
    assert found(compute_bound(Context.of(healthy(busy=busy, uses_gpu=True)))).share > 0.9


def test_waiting_for_another_rank_is_no_cost_of_each_step() -> None:
    """Gradients that are averaged by hand: the call stands still until the late rank comes."""
    view = healthy(cpu=0.008, busy={"forward": 0.001, "backward": 0.002, "optimizer": 0.0005, "collective": 0.0085})
    assert found(small_batch(Context.of(view))).share > 0.4
    late = Ranks(2, 100, 1, 0, 1.0, 0.6, "waits for batches", 0.02, 0.001)
    answer = small_batch(Context.of(replace(view, ranks=late)))
    assert not isinstance(answer, Cause) or answer.share < 0.4
    assert isinstance(small_batch(Context.of(replace(view, ranks=replace(late, straggler=0)))), Cause)
