"""Work that a step does twice: the cause, and what it would save."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.diagnose.causes.repeated_work import (
    activation_checkpointing,
    repeated_rows,
    repeated_work,
    reported_passes,
)
from flatout.diagnose.ranking import judge
from flatout.measure.read_values import read_read_values
from flatout.measure.repeated_work import RepeatedLine, RepeatedWork
from flatout.predict.context import Context
from flatout.remedies import propose
from flatout.results import NotMeasured
from tests.diagnose.views import ROWS, healthy, reported, starved

LINE = RepeatedLine("/home/me/train.py", 12, "forward", "parametrization", "linalg_matrix_exp", 0.003, 35)
TWICE = RepeatedWork(0.3, 0.5, (LINE, replace(LINE, operator="mm", reason="", file="")))


def test_half_of_a_step_is_computed_again() -> None:
    context = Context.of(replace(healthy(), repeated_work=TWICE))
    causes, _ = judge(context)
    cause = next(one for one in causes if one.id == "repeated_work")
    assert cause.share == pytest.approx(0.5, abs=0.06)
    assert cause.title == "each step computes the same again: linalg_matrix_exp and mm of the same values"
    assert cause.evidence[0].text.endswith("30% of the time of all, and with the backward passes that follow them 50%")
    assert cause.evidence[1].text == "linalg_matrix_exp: 35 calls more, 3.0 ms (train.py:12, forward)"
    assert cause.evidence[2].text == "mm: 35 calls more, 3.0 ms"
    remedy = next(one for one in propose(context, causes)[0] if one.id == "compute_once")
    assert remedy.title == "make the parametrized weight once in a step (train.py:12)"
    assert remedy.how.startswith("with torch.nn.utils.parametrize.cached()")
    assert remedy.gain.low == pytest.approx(1.4, abs=0.1) and remedy.gain.predicted == pytest.approx(1.9, abs=0.15)


def test_a_part_of_a_step_is_less_sure() -> None:
    cause = repeated_work(Context.of(replace(healthy(), repeated_work=replace(TWICE, first=50_000))))
    assert cause is not None and not isinstance(cause, NotMeasured) and cause.confidence == 0.5
    assert cause.evidence[0].text.startswith("in the first 50,000 operators of one step after the window")


@pytest.mark.parametrize(
    ("seen", "because"),
    [("the model is compiled", "the model is compiled"), (None, "no steps were measured after the window")],
)
def test_a_step_that_was_not_looked_at_is_not_judged(seen: str | None, because: str) -> None:
    answer = repeated_work(Context.of(replace(healthy(), repeated_work=seen)))
    assert isinstance(answer, NotMeasured) and answer.because == because


@pytest.mark.parametrize("seen", [RepeatedWork(0.0, 0.0, ()), RepeatedWork(0.02, 0.03, (LINE,))])
def test_a_little_is_made_again_in_many_trainings(seen: RepeatedWork | None) -> None:
    assert repeated_work(Context.of(replace(healthy(), repeated_work=seen))) is None


def test_where_the_loader_is_slow_it_is_not_first() -> None:
    causes, _ = judge(Context.of(replace(starved(), repeated_work=TWICE)))
    assert causes[0].id != "repeated_work"


@pytest.mark.parametrize(
    ("memory", "free", "confidence"), [({"total_bytes": 16 << 30}, 12 << 30, 0.8), (None, None, 0.5)]
)
def test_checkpointing_is_named_where_memory_has_room(
    memory: dict[str, int] | None, free: int | None, confidence: float
) -> None:
    seen = RepeatedWork(0.0, 0.0, (), on_purpose=0.3)
    run = healthy(usage={"available_bytes": free})
    context = Context.of(replace(run, repeated_work=seen, machine={"memory": memory}))
    cause = activation_checkpointing(context)
    assert cause is not None and not isinstance(cause, NotMeasured)
    assert cause.share == pytest.approx(0.3, abs=0.05) and cause.confidence == confidence
    assert "computed again what took 30%" in cause.evidence[0].text
    assert ("25% of the machine's memory" in cause.evidence[1].text) == (memory is not None)
    remedy = next(one for one in propose(context, judge(context)[0])[0] if one.id == "keep_activations")
    assert remedy.settings == {"activations_kept": True} and remedy.semantic_class == "identical"
    assert repeated_work(context) is None


@pytest.mark.parametrize(("used", "named"), [(20 << 30, True), (60 << 30, False)])
def test_on_a_gpu_its_own_memory_counts(used: int, named: bool) -> None:
    usage = {"gpu_memory_used_bytes": used, "gpu_memory_total_bytes": 80 << 30, "available_bytes": 0}
    run = healthy(uses_gpu=True, usage=usage)
    cause = activation_checkpointing(Context.of(replace(run, repeated_work=RepeatedWork(0.0, 0.0, (), on_purpose=0.3))))
    assert (cause is not None) == named
    if cause is not None and not isinstance(cause, NotMeasured):
        assert cause.evidence[1].text.startswith("25% of the GPU's memory is in use: 60.0 GiB are free")


@pytest.mark.parametrize(("on_purpose", "free"), [(0.3, 6 << 30), (0.02, 12 << 30)])
def test_checkpointing_is_none_where_memory_is_scarce_or_it_takes_little(on_purpose: float, free: int) -> None:
    run = healthy(usage={"available_bytes": free})
    seen = RepeatedWork(0.0, 0.0, (), on_purpose=on_purpose)
    context = Context.of(replace(run, repeated_work=seen, machine={"memory": {"total_bytes": 16 << 30}}))
    assert activation_checkpointing(context) is None


def test_rows_that_repeat_are_named_before_what_is_computed_again() -> None:
    context = Context.of(replace(healthy(), repeated_rows=ROWS, repeated_work=replace(TWICE, with_backward=0.2)))
    causes, _ = judge(context)
    assert causes[0].id == "repeated_rows" and causes[0].share == pytest.approx(0.5, abs=0.06)
    assert "a row's values are there up to 81 times" in causes[0].evidence[0].text
    assert causes[0].evidence[1].text == "4.0 ms in products of model.py:82, forward"
    assert next(one for one in causes if one.id == "repeated_work").hidden_by == "repeated_rows"
    remedy = propose(context, causes)[0][0]
    assert remedy.id == "split_weight" and remedy.title.endswith("once (model.py:82)")
    assert remedy.gain.predicted > 1.8
    assert repeated_rows(Context.of(healthy())) is None
    assert repeated_rows(Context.of(replace(healthy(), repeated_rows=replace(ROWS, part=0.02)))) is None


def test_passes_for_numbers_that_are_read_are_named_with_the_line() -> None:
    context = Context.of(reported(healthy()))
    causes, _ = judge(context)
    cause = next(one for one in causes if one.id == "reported_passes")
    assert cause.share == pytest.approx(0.4, abs=0.05)
    assert "40% of the time of all operators was for numbers that are read" in cause.evidence[0].text
    assert cause.evidence[1].text == "4.0 ms for what /code/train.py:76, train reads"
    remedy = next(one for one in propose(context, causes)[0] if one.id == "report_in_some_steps")
    assert remedy.title == "compute what is only reported in every 10th step (train.py:76)"
    assert reported_passes(Context.of(reported(healthy(), 0.01))) is None
    looked = replace(healthy(), repeated_work="the steps are too long")
    assert isinstance(reported_passes(Context.of(looked)), NotMeasured)
    process: Any = SimpleNamespace(info={"read_values": {"ns": 100, "alone_ns": 40, "lines": [["a.py", 7, "f", 40]]}})
    read = read_read_values(process)
    assert read is not None and read.part == 0.4 and read.lines[0].seconds == 4e-8
    process.info["read_values"]["alone_ns"] = 0
    assert read_read_values(process) is None
