"""Copies between memory layouts, on planted views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.diagnose.causes.layouts import layout_conversions
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.predict.context import Context
from flatout.results import Line, NotMeasured
from tests.diagnose.views import LINE, healthy, small_operators, starved

TURNED = Line("model.py", 17, "forward", "x = x.permute(0, 2, 3, 1).contiguous()", 1.0)


def test_conversions_lead_with_the_line_that_calls_them() -> None:
    view = healthy(cpu=0.008, lines={"forward": TURNED})
    operators = small_operators(0.001, conversions=24, conversions_s=0.0045)
    context = Context.of(replace(view, operators=operators))
    causes, _ = judge(context)
    assert causes[0].id == "layout_conversions"
    assert causes[0].share == pytest.approx(0.45, abs=0.03)
    assert "24 copies" in causes[0].evidence[0].text and "upper bound" in causes[0].evidence[-1].text
    assert "model.py:17" in verdict(context, causes)


def test_a_hot_line_that_copies_nothing_is_not_named() -> None:
    operators = small_operators(0.001, conversions=24, conversions_s=0.0045)
    context = Context.of(replace(healthy(cpu=0.008, lines={"forward": LINE}), operators=operators))
    causes, _ = judge(context)
    assert "train.py" not in verdict(context, causes)


def test_the_copies_of_attention_are_no_fault() -> None:
    operators = small_operators(0.001, conversions=60, conversions_s=0.0008)
    assert layout_conversions(Context.of(replace(healthy(cpu=0.008), operators=operators))) is None


def test_conversions_give_nothing_while_batches_are_awaited() -> None:
    operators = small_operators(0.001, conversions=24, conversions_s=0.0045)
    assert layout_conversions(Context.of(replace(starved(), operators=operators))) is None


def test_a_trace_without_strides_or_no_trace_is_not_measured() -> None:
    answer = layout_conversions(Context.of(replace(healthy(), operators=small_operators(0.001, conversions=None))))
    assert isinstance(answer, NotMeasured) and "strides" in answer.because
    assert isinstance(layout_conversions(Context.of(healthy())), NotMeasured)
