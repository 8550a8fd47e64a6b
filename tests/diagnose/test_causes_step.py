"""Causes inside the step, on planted views."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from flatout.diagnose.causes.device import small_batch
from flatout.diagnose.causes.host import main_process_work
from flatout.diagnose.causes.step import interpreter_lock, overhead_bound, wide_dtype
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.experiments import Experiments, Tried
from flatout.measure.lock_waits import LockWaits
from flatout.predict.context import Context
from flatout.remedies.step import thread_to_process
from flatout.results import Cause, Line, NotMeasured
from tests.diagnose.views import LINE, healthy, small_operators, starved

HELD = Line("train.py", 30, "collect", "total += value", 1.0)


def found(answer: Cause | NotMeasured | None) -> Cause:
    assert isinstance(answer, Cause), answer
    return answer


def locked_by_thread(share: float) -> LockWaits:
    return LockWaits(share, "metrics", 0.9, (HELD,))


def test_a_held_lock_leads_with_the_thread_and_the_line() -> None:
    context = Context.of(replace(healthy(), lock=locked_by_thread(0.4)))
    causes, _ = judge(context)
    assert causes[0].id == "interpreter_lock"
    assert causes[0].share == pytest.approx(0.4, abs=0.02)
    said = verdict(context, causes)
    assert "thread 'metrics'" in said
    assert "train.py:30" in said


def test_a_thread_that_keeps_a_core_from_the_training_comes_before_the_number_of_threads() -> None:
    tried = Tried(blocks=7, steps=3, unchanged_s=0.24, changed_s=0.12, gain=0.5, low=0.45)
    view = replace(
        healthy(cpu=0.001), lock=locked_by_thread(0.05), cores=2.0, experiments=Experiments(tried={"threads=1": tried})
    )
    context = Context.of(replace(view, process=replace(view.process, threads=2)))
    causes, _ = judge(context)
    assert causes[0].id == "interpreter_lock" and "takes a core" in causes[0].title
    assert "takes a core" in verdict(context, causes)
    # A process would need the same core.
    proposal = thread_to_process.propose(context, causes[0])
    assert proposal is not None and "sleep between its turns" in proposal.title
    assert causes[0].share > 0.3


def test_a_short_wait_for_the_lock_is_no_fault() -> None:
    context = Context.of(replace(healthy(), lock=locked_by_thread(0.02)))
    assert [cause.id for cause in judge(context)[0]] == ["compute_bound"]


def test_a_wait_for_the_lock_gives_nothing_while_batches_are_awaited() -> None:
    assert interpreter_lock(Context.of(replace(starved(), lock=locked_by_thread(0.15)))) is None


def test_a_wait_that_a_busy_gpu_does_not_notice_costs_nothing() -> None:
    view = healthy(uses_gpu=True, usage={"device_busy_share": 0.99})
    assert interpreter_lock(Context.of(replace(view, lock=locked_by_thread(0.4)))) is None


def test_the_thread_that_pins_batches_is_none_to_move_elsewhere() -> None:
    pin = Line("/x/site-packages/torch/utils/data/_utils/pin_memory.py", 28, "do_one_step", "r = in_queue.get()", 2.0)
    waits = replace(locked_by_thread(0.4), lines=(pin, HELD))
    assert interpreter_lock(Context.of(replace(healthy(), lock=waits))) is None
    received = replace(pin, file="/x/site-packages/torch/multiprocessing/reductions.py")
    for lines, own in (((received, pin), False), ((HELD, pin), True), ((received, HELD), True), ((received,), True)):
        answer = interpreter_lock(Context.of(replace(healthy(), lock=replace(waits, lines=lines))))
        assert (answer is not None) is own


def test_what_the_kernel_does_not_show_is_not_measured() -> None:
    answer = interpreter_lock(Context.of(replace(healthy(), lock="not shown here")))
    assert isinstance(answer, NotMeasured)
    assert answer.because == "not shown here"


def test_overhead_leads_with_the_number_of_operators_and_the_line() -> None:
    view = healthy(cpu=0.008, lines={"forward": LINE})
    context = Context.of(replace(view, operators=small_operators(0.006)))
    causes, _ = judge(context)
    assert causes[0].id == "overhead_bound"
    assert causes[0].share == pytest.approx(0.58, abs=0.03)
    assert "2,000 operators" in causes[0].evidence[0].text
    assert "60%" in causes[0].evidence[1].text
    assert "train.py:12" in verdict(context, causes)


def test_the_usual_overhead_is_no_fault() -> None:
    assert overhead_bound(Context.of(replace(healthy(cpu=0.008), operators=small_operators(0.002)))) is None


def test_overhead_gives_nothing_while_batches_are_awaited() -> None:
    assert overhead_bound(Context.of(replace(starved(), operators=small_operators(0.006)))) is None


def test_waits_for_the_lock_are_not_counted_as_overhead_again() -> None:
    view = replace(healthy(cpu=0.008), operators=small_operators(0.006), lock=locked_by_thread(0.5))
    assert next(cause.id for cause in judge(Context.of(view))[0]) == "interpreter_lock"
    assert overhead_bound(Context.of(view)) is None


def test_a_step_that_sleeps_has_no_overhead_of_operators() -> None:
    """As one that waits for another process, or for a device that no trace shows."""
    asleep = small_operators(0.009, blocked_s=0.0095)
    assert overhead_bound(Context.of(replace(healthy(cpu=0.008), operators=asleep))) is None


def test_without_a_trace_overhead_is_not_measured() -> None:
    answer = overhead_bound(Context.of(healthy()))
    assert isinstance(answer, NotMeasured)
    assert "no kernel trace" in answer.because


def test_few_samples_make_the_batch_the_reason_for_the_overhead() -> None:
    view = replace(healthy(cpu=0.008), operators=small_operators(0.008))
    assert small_batch(Context.of(view)) is None
    steps = replace(view.ledger.steps, samples=2 * view.ledger.steps.count)
    few = replace(view, ledger=replace(view.ledger, steps=steps))
    assert found(small_batch(Context.of(few))).share > found(overhead_bound(Context.of(few))).share - 0.02


def test_wide_floats_lead_with_what_narrow_ones_would_save() -> None:
    """Products take 2.5 times as long, and everything else twice the bytes: 0.6 * 6 ms + 0.5 * 3 ms of 10 ms."""
    operators = small_operators(0.001, wide_s=0.009, saved_by_float32_s=0.0051, float64_factor=2.5)
    context = Context.of(replace(healthy(cpu=0.008), operators=operators))
    causes, _ = judge(context)
    assert causes[0].id == "wide_dtype"
    assert re.match(
        r"Operators compute in 64-bit floats: 32-bit ones would save \d+% of the time", verdict(context, causes)
    )
    assert causes[0].share == pytest.approx(0.5, abs=0.02)
    assert "2.5x" in causes[0].evidence[0].text


def test_whether_factors_of_matrices_can_be_narrow_is_not_known() -> None:
    operators = small_operators(0.001, wide_s=0.009, saved_by_float32_s=0.0051, factorised_s=0.002)
    answer = wide_dtype(Context.of(replace(healthy(cpu=0.008), operators=operators)))
    assert isinstance(answer, NotMeasured) and answer.because.startswith("22% of the time in 64-bit floats")
    few = replace(operators, factorised_s=0.0005)
    assert found(wide_dtype(Context.of(replace(healthy(cpu=0.008), operators=few)))).share > 0.4


def test_a_loss_summed_up_in_wide_floats_is_no_fault() -> None:
    operators = small_operators(0.001, wide_s=0.0003)
    assert wide_dtype(Context.of(replace(healthy(cpu=0.008), operators=operators))) is None
    assert wide_dtype(Context.of(replace(healthy(cpu=0.008), operators=small_operators(0.001)))) is None


def test_narrow_floats_give_nothing_while_batches_are_awaited() -> None:
    operators = small_operators(0.001, wide_s=0.009, saved_by_float32_s=0.0045)
    assert wide_dtype(Context.of(replace(starved(), operators=operators))) is None


def test_code_in_a_step_that_calls_no_operator_is_the_training_processes_own_work() -> None:
    view = healthy(cpu=0.001, lines={"forward": LINE})
    operators = small_operators(0.007, other_code_s=0.006)
    context = Context.of(replace(view, operators=operators))
    cause = found(main_process_work(context))
    assert cause.share > 0.4 and "without an operator" in cause.evidence[0].text
    assert overhead_bound(context) is None
    locked = Context.of(replace(view, operators=operators, lock=locked_by_thread(0.6)))
    assert main_process_work(locked) is None
