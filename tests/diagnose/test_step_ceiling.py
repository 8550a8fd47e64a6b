"""How near a step comes to its device, in words, on hand-made operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.causes.device import compute_bound
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.costly_operators import CostlyOperator
from flatout.measure.experiments import Experiments
from flatout.measure.operator_costs import NOTHING, Cost
from flatout.measure.roofline import Ceilings, Roofline
from flatout.predict.context import Context
from flatout.results import Cause, Line
from tests.diagnose.views import healthy, small_operators, tried

CALL = Line("/home/me/model.py", 31, "forward", "x = self.conv(x)", 2.0)
CEILINGS = Ceilings(2, {"float32": 93e9}, {"float32": 88e9}, ((1 << 20, 4e10), (1 << 26, 12 * 2**30)))
CONVOLUTION = CostlyOperator(
    name="aten::convolution_backward",
    inputs="32x64x28x28, 64x64x3x3",
    dtype="float32",
    caller="conv2d",
    calls=1.0,
    seconds=0.005,
    cost=Cost(250_000_000, 20_000_000, "float32", convolution=True),
    possible_s=0.0035,
    lines=(CALL,),
)
SORT = CostlyOperator("aten::sort", "32x1000", "float32", "sort", 2.0, 0.001, None)


def near(**changes: Any) -> Roofline:
    usual = Roofline(0.71, 0.9, 0.009, 0.0068, CEILINGS, CONVOLUTION, 0.6, ("sort",))
    return replace(usual, **changes)


def context(roofline: Roofline | str, experiments: Experiments | None = None) -> Context:
    operators = small_operators(0.0004, costliest=(CONVOLUTION, SORT), roofline=roofline)
    view = healthy(cpu=0.001)
    return Context.of(replace(view, operators=operators, experiments=experiments or Experiments(steps=20)))


def said(roofline: Roofline | str, experiments: Experiments | None = None) -> str:
    given = context(roofline, experiments)
    return verdict(given, judge(given)[0])


def found(roofline: Roofline | str) -> Cause:
    answer = compute_bound(context(roofline))
    assert isinstance(answer, Cause)
    return answer


def test_the_verdict_says_how_near_what_is_left_and_where() -> None:
    assert said(near()) == (
        "The model's own computation takes 97% of the time, waiting for batches 2.9%. "
        "A step runs at 71% of what this device gives for its operators: at most 1.41x is left with the same ones, "
        "most of it in convolution_backward (model.py:31)."
    )


def test_less_than_half_of_what_is_lost_is_only_the_largest_part() -> None:
    assert said(near(lost_share=0.3)).endswith("the largest part of it in convolution_backward (model.py:31).")


def test_what_was_tried_in_vain_follows() -> None:
    sentence = said(near(lost=None), Experiments(tried={"threads=1": tried(-0.4)}, steps=40))
    assert sentence.endswith("most of it in Python and the launching of operators; it is no faster with 1 thread.")


def test_without_a_ceiling_the_verdict_says_why_nothing_is_known() -> None:
    because = "the cost of operators that take 45% of the time in kernels is not known (sort)"
    assert said(because).endswith(f"2.9%. Whether that is slow is not known, because {because}.")


def test_the_evidence_holds_the_rates_and_the_step() -> None:
    texts = [one.text for one in found(near()).evidence]
    assert texts[1] == (
        "measured after the window, this device gives 93 GFLOP/s in float32 products, "
        "88 GFLOP/s in float32 convolutions, 12.0 GiB/s of memory, up to 37.3 GiB/s of caches"
    )
    assert texts[2] == (
        "operators of known cost take 9.0 ms of the 9.6 ms in kernels of a step, and would take 6.8 ms at these rates; "
        "400 µs pass around kernels; the others (sort) are taken to run as these do"
    )
    assert found(near()).evidence[2].values["achieved"] == pytest.approx(0.71)


def test_the_costliest_operators_have_their_share_rate_and_line() -> None:
    first, second = found(near()).evidence[3:]
    assert first.text == (
        "convolution_backward float32 32x64x28x28, 64x64x3x3: 52% of the time in kernels, 50 GFLOP/s, "
        "70% of the possible (model.py:31)"
    )
    assert first.values["file"] == "/home/me/model.py"
    assert first.values["flops"] == pytest.approx(50e9)
    assert second.text == "sort float32 32x1000: 10% of the time in kernels, of unknown cost"


def test_without_a_ceiling_operators_are_listed_without_what_is_possible() -> None:
    evidence = found("the rates were not measured").evidence
    assert [one.values.get("operator") for one in evidence] == [None, "aten::convolution_backward", "aten::sort"]


def test_the_engine_of_the_backward_pass_has_no_work_of_its_own() -> None:
    engine = CostlyOperator(
        "autograd::engine::evaluate_function: CatBackward0", "", "", "cat", 3.0, 0.001, NOTHING, 0.0
    )
    view = replace(healthy(), operators=small_operators(0.0004, costliest=(engine,), roofline=near()))
    cause = compute_bound(Context.of(view))
    assert isinstance(cause, Cause)
    assert cause.evidence[-1].text == "CatBackward0: 10% of the time in kernels, without work of its own"


def test_operators_that_take_next_to_nothing_are_left_out() -> None:
    tiny = replace(SORT, seconds=0.00001)
    view = replace(healthy(), operators=small_operators(0.0004, costliest=(CONVOLUTION, tiny)))
    cause = compute_bound(Context.of(view))
    assert isinstance(cause, Cause)
    assert len(cause.evidence) == 2
