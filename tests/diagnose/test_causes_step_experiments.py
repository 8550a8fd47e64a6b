"""Causes inside the step, on runs whose steps after the window showed something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.causes.step_experiments import (
    debug_mode,
    garbage_collection,
    hooks,
    too_few_threads,
    too_many_threads,
)
from flatout.diagnose.findings import debug_environment
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.debug_code import DebugCode
from flatout.measure.experiments import Experiments
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.context import Context
from flatout.results import Cause, NotMeasured
from tests.diagnose.views import LINE, healthy, small_operators, starved, tried


def run(view: MeasuredRun | None = None, **given: Any) -> Context:
    return Context.of(replace(view or healthy(cpu=0.001), experiments=Experiments(**given)))


def found(answer: Cause | NotMeasured | None) -> Cause:
    assert isinstance(answer, Cause), answer
    return answer


def test_anomaly_detection_is_named_with_its_line_and_its_measured_cost() -> None:
    context = run(tried={"anomaly_mode": tried(0.6)}, debugging={"anomaly_mode": "train.py:12"}, steps=56)
    cause = found(debug_mode(context))
    assert cause.share == pytest.approx(0.6, abs=0.02)
    assert cause.evidence[0].text == (
        "anomaly detection (train.py:12) is on: 7 blocks of 8 steps without it took 12 ms a step, as it is 31 ms"
    )


def test_it_leads_before_the_computation_that_it_slows() -> None:
    causes, _ = judge(run(tried={"anomaly_mode": tried(0.6)}))
    assert [cause.id for cause in causes] == ["debug_mode", "compute_bound"]


def test_overhead_is_judged_once_the_tracing_that_causes_it_is_gone() -> None:
    view = replace(run(tried={"trace_function": tried(0.6)}).run, operators=small_operators(0.008))
    causes, _ = judge(Context.of(view))
    assert [(cause.id, cause.hidden_by) for cause in causes[:2]] == [
        ("debug_mode", None),
        ("overhead_bound", "debug_mode"),
    ]


def test_what_a_fault_takes_is_no_computation_of_the_models_own() -> None:
    causes, _ = judge(run(tried={"anomaly_mode": tried(0.6)}))
    assert causes[0].share + causes[1].share <= 1.0


@pytest.mark.parametrize("one", [tried(0.02), tried(0.2, low=-0.01), tried(-0.1)])
def test_a_setting_that_costs_little_or_not_for_certain_is_not_named(one: Any) -> None:
    context = run(tried={"tracemalloc": one}, debugging={"tracemalloc": "train.py:3"}, steps=56)
    assert debug_mode(context) is None
    assert judge(context)[0][0].id == "compute_bound"


def test_a_setting_whose_cost_was_not_measured_is_not_measured() -> None:
    answer = debug_mode(run(debugging={"profiler": "train.py:9"}, skipped="2 ranks have to stay in step"))
    assert isinstance(answer, NotMeasured)
    assert answer.because == (
        "torch's profiler (train.py:9) is on, and its cost was not measured: 2 ranks have to stay in step"
    )


def test_a_faster_step_gives_nothing_to_a_run_that_waits_for_data() -> None:
    assert debug_mode(run(starved(), tried={"anomaly_mode": tried(0.6)})) is None


def test_assertions_are_named_by_the_samples_in_them() -> None:
    view = replace(healthy(cpu=0.001), debug_code={"assertions": DebugCode(0.4, LINE)})
    cause = found(debug_mode(Context.of(view)))
    assert cause.share == pytest.approx(0.4, abs=0.02)
    assert cause.evidence[0].text == (
        "40% of the stack samples are in assertions in the training code, most often at train.py:12"
    )
    assert verdict(Context.of(view), (cause,)).startswith("Assertions in the training code (train.py:12) take 4")
    few = replace(healthy(cpu=0.001), debug_code={"assertions": DebugCode(0.01, LINE)})
    assert debug_mode(Context.of(few)) is None


def test_hooks_are_named_with_their_function() -> None:
    context = run(hooks=(LINE,), hooks_share=0.4, steps=56)
    cause = found(hooks(context))
    assert verdict(context, (cause,)).startswith("Hooks on the model take 40% of the time (train.py:12 load).")
    assert cause.share == pytest.approx(0.4, abs=0.02)
    assert "train.py:12 load" in cause.evidence[1].text


def test_a_few_cheap_hooks_are_no_fault() -> None:
    assert hooks(run(hooks=(LINE,), hooks_share=0.01, steps=56)) is None
    assert hooks(run(steps=56)) is None


def test_hooks_that_the_gpu_does_not_notice_cost_nothing() -> None:
    busy = healthy(cpu=0.001, uses_gpu=True, usage={"device_busy_share": 0.99})
    assert hooks(run(busy, hooks=(LINE,), hooks_share=0.4, steps=56)) is None
    idle = healthy(cpu=0.001, uses_gpu=True, usage={"device_busy_share": 0.5})
    assert found(hooks(run(idle, hooks=(LINE,), hooks_share=0.4, steps=56))).share == pytest.approx(0.4, abs=0.02)
    assert isinstance(hooks(run(healthy(uses_gpu=True), hooks=(LINE,), hooks_share=0.4, steps=56)), NotMeasured)


def test_without_steps_after_the_window_hooks_are_not_judged() -> None:
    assert isinstance(hooks(run()), NotMeasured)


def test_garbage_collection_is_named_where_it_takes_time() -> None:
    context = run(collector_share=0.5, collections=1.0, steps=56)
    cause = found(garbage_collection(context))
    assert cause.share > 0.45
    assert verdict(context, (cause,)).startswith("Python's garbage collector takes ")
    assert garbage_collection(run(collector_share=0.01, collections=0.1, steps=56)) is None


def test_threads_are_named_in_the_direction_of_the_gain() -> None:
    crowded = healthy(cpu=0.001, cores=2, process={"threads": 16})
    context = run(crowded, tried={"threads=2": tried(0.7), "threads=1": tried(0.5)})
    cause = found(too_many_threads(context))
    assert cause.title == "the model computes with 16 threads on 2 usable cores, too many"
    assert cause.share == pytest.approx(0.7, abs=0.02) and "with 2 took" in cause.evidence[0].text
    assert judge(context)[0][0].id == "too_many_threads"
    assert verdict(context, judge(context)[0]) == (
        "The model computes with 16 threads on 2 usable cores, too many: 2 threads would give 70% of the time back."
    )
    assert too_few_threads(context) is None
    assert found(too_few_threads(run(tried={"threads=8": tried(0.5)}))).share > 0.4
    assert too_many_threads(run(tried={"threads=8": tried(0.5)})) is None


def test_threads_without_a_gain_are_no_fault() -> None:
    assert too_many_threads(run(healthy(process={"threads": 2}), tried={"threads=1": tried(-0.5)})) is None
    assert too_many_threads(run(healthy(process={"threads": 2}), tried={"threads=1": tried(0.2, low=-0.1)})) is None


def test_threads_that_neighbours_delay_are_no_fault_of_the_training() -> None:
    shared = healthy(cpu=0.001, cores=2, usage={"other_cores": 1.5}, process={"threads": 2})
    answer = too_many_threads(run(shared, tried={"threads=1": tried(0.4)}))
    assert isinstance(answer, NotMeasured)
    assert answer.because == "other processes used 1.5 cores: that 1 thread was faster may be due to them"
    crowded = replace(shared, process=replace(shared.process, threads=16))
    assert found(too_many_threads(run(crowded, tried={"threads=2": tried(0.4)}))).share > 0.3


def test_variables_for_debugging_are_a_finding_and_not_a_cause() -> None:
    context = run(debugging={"CUDA_LAUNCH_BLOCKING": "1"}, steps=56)
    finding = debug_environment(context.run)
    assert finding is not None and "CUDA_LAUNCH_BLOCKING=1" in finding.evidence[0].text
    assert debug_mode(context) is None
    assert debug_environment(run().run) is None
