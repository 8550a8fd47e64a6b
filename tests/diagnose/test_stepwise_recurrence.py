"""Recurrent layers that are called step by step: when that is a fault, and what one call gives."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.diagnose.causes.stepwise_recurrence import stepwise_recurrence
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.stepwise_layers import StepwiseLayer, read_stepwise_layers
from flatout.predict.context import Context
from flatout.remedies.proposal import NUMERICS
from flatout.results import NotMeasured
from tests.diagnose.test_causes_unneeded_work import found, remedies, run
from tests.diagnose.views import healthy


class Process:
    def __init__(self, layers: Any) -> None:
        self.info = {"stepwise_layers": layers}


SEEN = {"name": "Net.lstm", "kind": "LSTM", "calls": 96, "chained": 95, "timed": 64}
TIMES = {"apart_ns": [6_400_000, 7_000_000], "joined_ns": [1_600_000, 2_100_000]}


def stepwise(**changes: Any) -> Context:
    """A step of 10 ms, of which 96 calls take 4.8 ms."""
    layer = {"name": "Net.lstm", "kind": "LSTM", "calls": 96, "call_s": 5e-5, "part": 0.25, "low": 0.2, "high": 0.3}
    return run(healthy(), stepwise_layers=(StepwiseLayer(**{**layer, **changes}),))


def test_a_layer_is_named_with_what_one_call_would_save() -> None:
    context = stepwise()
    cause = found(stepwise_recurrence(context))
    assert cause.share == pytest.approx(0.5, abs=0.03)  # 36% in the layer, and at most 64%
    assert "called 96 times a step with one time step each" in cause.evidence[0].text
    assert "25% of the time (20% to 30%)" in cause.evidence[0].text
    causes, _ = judge(context)
    assert causes[0].id == "stepwise_recurrence"
    assert verdict(context, causes).startswith("Net.lstm is called 96 times in a step, for one time step each: one")
    offered = remedies(context)["whole_sequence"]
    assert offered.semantic_class == NUMERICS and offered.title == "call Net.lstm once with all 96 time steps"
    assert 1.2 < offered.gain.low < offered.gain.predicted < offered.gain.high and "Cell" not in offered.how


def test_a_cell_has_the_weights_of_a_layer() -> None:
    assert "nn.GRU in place of nn.GRUCell" in remedies(stepwise(kind="GRUCell"))["whole_sequence"].how


def test_no_more_than_both_passes_is_saved() -> None:
    cause = found(stepwise_recurrence(stepwise(call_s=1.0, part=0.01)))
    assert cause.share < 1.0


def test_where_one_call_is_no_faster_or_was_not_timed_there_is_no_cause() -> None:
    assert stepwise_recurrence(stepwise(part=0.99, low=0.9, high=1.0)) is None
    assert stepwise_recurrence(run(healthy())) is None
    answer = stepwise_recurrence(stepwise(call_s=None, skipped="hooks on it would see the calls"))
    assert isinstance(answer, NotMeasured) or "hooks" in str(answer)


def test_the_fastest_rounds_are_compared() -> None:
    process: Any = Process([{**SEEN, "calls": 8}, {**SEEN, **TIMES}, {"kind": "GRU", "calls": 9, "skipped": "why"}])
    first, *others = read_stepwise_layers(process)
    assert (first.name, first.calls, first.call_s) == ("Net.lstm", 96, 1e-4)
    assert (first.part, first.low, first.high) == (0.25, 0.25, 0.3)
    assert first.saved_s(first.part) == pytest.approx(96 * 1e-4 * 0.75)
    assert [(one.name, one.call_s, one.skipped) for one in others] == [
        ("Net.lstm", None, "it was not timed"), ("GRU", None, "why"),
    ]  # fmt: skip
    empty: Any = Process(None)
    assert read_stepwise_layers(empty) == ()
