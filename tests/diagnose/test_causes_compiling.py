"""Causes in compiled code, on planted views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.diagnose.causes.compiling import graph_breaks, recompilation
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.compiling import Break, Compiling, Recompiled
from flatout.measure.graphs import GraphCalls
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.context import Context
from flatout.results import Cause, NotMeasured
from tests.diagnose.views import BATCHES, COMPUTE, compiled_again, healthy, in_pieces, small_operators, starved

FORWARD = {"forward": 0.008, "backward": 0.0015, "optimizer": 0.0005}  # a step of 10 ms


def found(answer: Cause | NotMeasured | None) -> Cause:
    assert isinstance(answer, Cause), answer
    return answer


def recompiling(**changes: object) -> MeasuredRun:
    """Of a step of 20 ms, 10 ms go to compilations."""
    return replace(healthy(busy=COMPUTE | {"compile": 0.010}, cpu=0.008), compiling=compiled_again(0.010, **changes))


def test_recompilation_leads_with_the_function_and_the_guard() -> None:
    context = Context.of(recompiling())
    causes, _ = judge(context)
    assert causes[0].id == "recompilation"
    assert causes[0].share == pytest.approx(0.5, abs=0.03)
    assert "7 compilations" in causes[0].evidence[0].text
    said = verdict(context, causes)
    assert "train.py:12" in said and "size mismatch" in said


def test_a_limit_is_said_to_leave_the_function_uncompiled() -> None:
    limited = found(recompilation(Context.of(recompiling(limited=True, late=False))))
    assert "run uncompiled" in limited.evidence[1].text
    assert "run uncompiled" not in found(recompilation(Context.of(recompiling()))).evidence[1].text


@pytest.mark.parametrize("changes", [{"repeated": False}, {"late": False}])
def test_compilations_of_the_warm_up_are_no_fault(changes: dict[str, bool]) -> None:
    assert recompilation(Context.of(recompiling(**changes))) is None


def test_a_limit_whose_compilations_cost_little_is_reported_without_a_share() -> None:
    view = replace(healthy(), compiling=compiled_again(0.00001, limited=True))
    answer = recompilation(Context.of(view))
    assert isinstance(answer, NotMeasured)
    assert "what that costs was not measured" in answer.because
    assert recompilation(Context.of(replace(healthy(), compiling=compiled_again(0.00001)))) is None


def test_compilations_give_nothing_while_batches_are_awaited() -> None:
    assert recompilation(Context.of(replace(starved(), compiling=compiled_again(0.005)))) is None


def test_what_torch_does_not_show_is_not_measured_and_a_training_without_it_is_silent() -> None:
    for judge_one in (recompilation, graph_breaks):
        answer = judge_one(Context.of(replace(healthy(), compiling="not shown")))
        assert isinstance(answer, NotMeasured) and answer.because == "not shown"
        assert judge_one(Context.of(healthy())) is None


def test_pieces_lead_with_the_line_of_the_break() -> None:
    view = replace(healthy(cpu=0.008, busy=FORWARD), compiling=in_pieces(0.5), operators=small_operators(0.005))
    context = Context.of(view)
    causes, _ = judge(context)
    assert causes[0].id == "graph_breaks"
    assert causes[0].share == pytest.approx(0.4, abs=0.03)
    assert next(cause for cause in causes if cause.id == "overhead_bound").hidden_by == "graph_breaks"
    calling = replace(view, operators=small_operators(0.005, in_graph_calls_s=0.003))
    both = judge(Context.of(calling))[0][0]
    # Of 25 graphs, one has to be called in any case.
    assert both.share - causes[0].share == pytest.approx(0.96 * 0.003 / 0.012, abs=0.05)
    assert any(one.text == "calling them takes 2.9 ms a step" for one in both.evidence)
    assert "train.py:12" in verdict(context, causes)
    assert "25 compiled graphs a step" in causes[0].evidence[0].text
    assert "Tensor.item" in causes[0].evidence[1].text


def test_a_break_that_costs_little_is_no_fault() -> None:
    causes, missing = judge(Context.of(replace(healthy(cpu=0.008, busy=FORWARD), compiling=in_pieces(0.06, count=1))))
    assert [cause.id for cause in causes] == ["compute_bound"]
    assert "graph_breaks" not in [one.id for one in missing]


def test_breaks_whose_cost_is_unknown_are_counted_and_do_not_rank() -> None:
    view = replace(healthy(), compiling=replace(in_pieces(0.5), calls="no kernel trace was taken"))
    causes, missing = judge(Context.of(view))
    assert [cause.id for cause in causes] == ["compute_bound"]
    because = next(one.because for one in missing if one.id == "graph_breaks")
    assert "24 graph breaks" in because and "train.py:12" in because and "no kernel trace" in because


def test_pieces_that_a_busy_gpu_does_not_notice_cost_nothing() -> None:
    busy = healthy(busy=FORWARD, uses_gpu=True, usage={"device_busy_share": 0.97})
    assert graph_breaks(Context.of(replace(busy, compiling=in_pieces(0.5)))) is None
    idle = healthy(busy=FORWARD, uses_gpu=True, usage={"device_busy_share": 0.6})
    assert found(graph_breaks(Context.of(replace(idle, compiling=in_pieces(0.75))))).share == pytest.approx(0.4)
    assert isinstance(graph_breaks(Context.of(replace(healthy(uses_gpu=True), compiling=in_pieces(0.5)))), NotMeasured)


def test_compiled_code_without_breaks_has_no_fault() -> None:
    whole = Compiling(0.0, (), (), "no graph breaks")
    assert graph_breaks(Context.of(replace(healthy(), compiling=whole))) is None


def test_the_builders_are_what_is_measured() -> None:
    again, pieces = compiled_again(0.01), in_pieces(0.5)
    assert isinstance(again.functions[0], Recompiled) and again.again_s == pytest.approx(0.01 * BATCHES)
    assert isinstance(pieces.breaks[0], Break) and isinstance(pieces.calls, GraphCalls)
