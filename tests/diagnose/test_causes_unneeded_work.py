"""Padding and unbatched calls, on runs whose steps after the window showed them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.causes.unneeded_work import (
    padding_waste,
    unbatched_calls,
)
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.call_loops import CallLoop
from flatout.measure.last_steps import LastSteps, Trimmed
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.padding import Padding
from flatout.measure.repeated_weights import JoinedCalls
from flatout.measure.validation import ValidationCalls
from flatout.predict.context import Context
from flatout.predict.step_changes import less_in_forward
from flatout.remedies import propose
from flatout.remedies.proposal import DATA, NUMERICS
from flatout.results import Cause, NotMeasured, Remedy
from tests.diagnose.views import COMPUTE, MIXED_ROWS, healthy, padded, repeated, small_operators, starved

SAME_ROWS = ([100, 98, 100], [99, 100, 100])


def run(view: MeasuredRun | None = None, **given: Any) -> Context:
    return Context.of(replace(view or healthy(cpu=0.001), **given))


def found(answer: Cause | NotMeasured | None) -> Cause:
    assert isinstance(answer, Cause), answer
    return answer


def remedies(context: Context) -> dict[str, Remedy]:
    return {remedy.id: remedy for remedy in propose(context, judge(context)[0])[0]}


def test_batches_of_a_fixed_length_are_to_end_with_their_longest_row() -> None:
    context = run(padding=padded(400, *SAME_ROWS))
    cause = found(padding_waste(context))
    # Three of four positions go, of forward and backward pass: nine tenths of the step.
    assert cause.share == pytest.approx(0.75 * 0.9, abs=0.02)
    assert cause.title == "batches are padded to a fixed length, beyond their longest rows"
    assert [one.text for one in cause.evidence] == [
        "75% of the positions of input_ids are padding, as a mask in the batch says",
        "in 6 rows of 2 batches, a row has 100 positions, the longest of a batch 100, and a batch 400 (means)",
    ]
    offered = remedies(context)
    assert "trim_padding" in offered and "group_by_length" not in offered
    assert offered["trim_padding"].semantic_class == DATA
    assert offered["trim_padding"].gain.predicted == pytest.approx(1 / (1 - cause.share), rel=0.01)
    assert verdict(context, judge(context)[0]) == (
        "75% of the positions that the model computes are padding: shorter batches would give 67% of the time back."
    )


def test_what_trimmed_batches_saved_takes_the_place_of_the_proportion() -> None:
    context = run(padding=padded(400, *SAME_ROWS), last_steps=LastSteps(trimmed=Trimmed(0.5, 0.45, 0.55)))
    assert found(padding_waste(context)).share == pytest.approx(0.5, abs=0.02)
    gain = remedies(context)["trim_padding"].gain
    assert gain.predicted == pytest.approx(2.0, abs=0.1) and gain.low < 1.85 and gain.high > 2.2
    assert remedies(context)["trim_padding"].basis.startswith("measured in steps after the window")


def test_a_saving_above_its_share_of_the_positions_is_extrapolated_by_a_power() -> None:
    rows = ([100, 20, 20], [100, 20, 20])  # trimming leaves half of the positions, and saves more than that
    context = run(padding=padded(200, *rows), last_steps=LastSteps(trimmed=Trimmed(0.6, 0.55, 0.65)))
    grouped = remedies(context)["group_by_length"].gain.predicted
    padding = context.run.padding
    assert isinstance(padding, Padding) and padding.trimmed == pytest.approx(0.5) and padding.grouped > 0.6
    straight = 1 / (1 - 0.6 * padding.grouped / padding.trimmed)
    assert 1 / (1 - padding.grouped) < grouped < straight


def test_rows_of_different_lengths_are_to_be_grouped() -> None:
    context = run(padding=padded(100, *MIXED_ROWS))
    cause = found(padding_waste(context))
    assert cause.share == pytest.approx(0.45 * 0.9, abs=0.02)
    assert cause.title == "rows of different lengths share batches, and are padded to the longest"
    offered = remedies(context)
    assert "group_by_length" in offered and "trim_padding" not in offered
    assert offered["group_by_length"].semantic_class == DATA
    assert "batches of rows of similar length would give" in verdict(context, judge(context)[0])


def test_samples_on_a_canvas_are_to_get_a_smaller_one() -> None:
    areas = ([8_000, 9_000, 10_000], [7_000, 9_000, 10_000])
    context = run(padding=padded(40_000, *areas, sides=(200, 200), tensor="0", evidence="lengths"))
    cause = found(padding_waste(context))
    assert cause.title == "samples lie on a canvas of 200x200, larger than the largest of their batch"
    assert [one.text for one in cause.evidence] == [
        "78% of the positions of batch[0] are padding, as sizes in the batch say",
        "in 6 samples of 2 batches, a sample has 8,833 positions, the largest of a batch 10,000, "
        "and the canvas 40,000 (means)",
    ]
    offered = remedies(context)
    assert "canvas as large as the largest sample of each batch: 10,000 positions" in offered["trim_padding"].title
    assert "smaller canvases would give" in verdict(context, judge(context)[0])
    mixed = run(padding=padded(100, *MIXED_ROWS, sides=(10, 10)))
    assert found(padding_waste(mixed)).title.startswith("samples of different sizes share batches")
    assert "batches of samples of similar size would give" in verdict(mixed, judge(mixed)[0])


def test_both_are_offered_where_both_gain() -> None:
    context = run(padding=padded(400, *MIXED_ROWS))
    offered = remedies(context)
    assert offered["group_by_length"].gain.predicted > offered["trim_padding"].gain.predicted > 2
    assert "shorter batches of rows of similar length would give" in verdict(context, judge(context)[0])


def test_the_share_is_what_the_only_remedy_gives() -> None:
    """Sorting these rows would gain a little more than trimming, too little to be proposed."""
    context = run(padding=padded(150, [100, 97, 98], [97, 100, 97]))
    cause = found(padding_waste(context))
    assert "group_by_length" not in remedies(context)
    assert remedies(context)["trim_padding"].gain.predicted == pytest.approx(1 / (1 - cause.share), rel=0.01)


@pytest.mark.parametrize("padding", [None, padded(101, *SAME_ROWS), padded(400, *SAME_ROWS, part=0.01)])
def test_little_padding_and_padding_of_a_small_part_is_no_fault(padding: Any) -> None:
    assert padding_waste(run(padding=padding)) is None


def test_padding_costs_nothing_while_the_training_waits_for_data() -> None:
    assert padding_waste(run(starved(), padding=padded(400, *SAME_ROWS))) is None


def test_overhead_of_operators_does_not_shrink_with_the_batch() -> None:
    padding = padded(400, *SAME_ROWS)
    half = found(padding_waste(run(padding=padding, operators=small_operators(0.005)))).share
    assert half == pytest.approx(0.5 * 0.75 * 0.9, abs=0.02)


def test_batches_that_were_not_looked_at_are_not_judged() -> None:
    answer = padding_waste(run(padding="2 ranks have to stay in step"))
    assert isinstance(answer, NotMeasured) and answer.because == "2 ranks have to stay in step"


def in_turn(joined: float | None = 0.2, **changes: Any) -> Context:
    """A step of 10 ms, 9 ms of it the model's: 5 ms around operators, the rest in their products."""
    operators = replace(small_operators(0.005), pointwise_s=0.0)
    return run(repeated_weight=repeated(joined, **changes), operators=operators)


def test_calls_in_turn_are_named_with_what_one_call_would_save() -> None:
    context = in_turn()
    cause = found(unbatched_calls(context))
    # 47 of 48 parts of the overhead that is not the optimizer's, and four fifths of the model's kernels.
    assert cause.share == pytest.approx((0.0045 * 47 / 48 + 0.004 * 0.8) / 0.010, abs=0.03)
    assert [one.text for one in cause.evidence] == [
        "Critic.2.weight (512x512) takes part in 96 products of a backward pass's graph, of which at most 2 depend on "
        "each other",
        "one product of all inputs takes 20% of the time of one after the other here",
    ]
    causes, _ = judge(context)
    assert causes[0].id == "unbatched_calls"
    assert [one.hidden_by for one in causes if one.id == "overhead_bound"] == ["unbatched_calls"]
    assert verdict(context, causes).startswith("Layers are called 48 times in turn, on inputs that could be one batch:")
    offered = remedies(context)["one_batch"]
    assert offered.semantic_class == NUMERICS and 1.3 < offered.gain.low < offered.gain.predicted


def test_what_one_call_of_the_module_saved_takes_the_place_of_its_products() -> None:
    """9 ms in the model, 8.5 of it in both passes of 96 calls; a call with 32 inputs takes a fifth of 32 calls."""
    module = JoinedCalls(calls=32, call_s=0.0085 / 96, part=0.2, low=0.18, high=0.25)
    context = in_turn(module=module)
    cause = found(unbatched_calls(context))
    part = module.of(48, 0.2)
    assert cause.share == pytest.approx(0.0085 * (1 - part) / 0.010, abs=0.05) and cause.confidence == 0.9
    assert cause.evidence[1].text == (
        "measured after the window, one call of the module with 32 inputs takes 20% of the time of 32 calls "
        "(18% to 25%), both passes"
    )
    offered = remedies(context)["one_batch"]
    assert offered.basis == "both passes of the module, measured with 32 inputs one by one and in one call"
    assert 1.8 < offered.gain.low < offered.gain.predicted == pytest.approx(1 / (1 - cause.share), rel=0.05)


@pytest.mark.parametrize(("between", "named"), [(0.04, True), (0.2, False)])
def test_what_else_stands_in_the_loop_is_saved_too_unless_it_works_on_each_result(between: float, named: bool) -> None:
    # The forward pass takes 3 ms of a step of 15 ms, and the loop with all that stands in it 7 ms.
    view = healthy(cpu=0.001, busy=COMPUTE | {"host_other": 0.005})
    loop = CallLoop(calls=12, share=7 / 15, between=between)
    operators = replace(small_operators(0.005), pointwise_s=0.0, loop=loop)
    inside = run(view, repeated_weight=repeated(), operators=operators)
    answer = unbatched_calls(inside)
    if not named:
        assert answer is None
        return
    cause = found(answer)
    alone = run(view, repeated_weight=repeated(), operators=replace(operators, loop=None))
    assert cause.share == pytest.approx(found(unbatched_calls(alone)).share + 0.004 * 11 / 12 / 0.015, abs=0.03)
    assert cause.title == "layers are called 12 times in turn, on inputs that could be one batch"
    assert "loops of 12 such calls take 47% of a traced step, with what else is done in them" in [
        one.text for one in cause.evidence
    ]


def test_products_that_are_no_faster_together_are_large_enough() -> None:
    few = replace(small_operators(0.0001), pointwise_s=0.0)
    assert unbatched_calls(run(repeated_weight=repeated(1.0), operators=few)) is None
    assert unbatched_calls(in_turn(part=0.01)) is None


def test_without_a_trace_nothing_is_known_of_calls_in_turn() -> None:
    context = run(repeated_weight=repeated(), operators="no kernel trace was taken")
    answer = unbatched_calls(context)
    assert isinstance(answer, NotMeasured) and answer.because == "no kernel trace was taken"
    assert unbatched_calls(run()) is None


def test_what_forward_passes_save_those_of_validation_save_too() -> None:
    view = healthy(gaps={"validation": 1.0})
    alone = less_in_forward(run(view), 0.001)
    both = less_in_forward(run(view, validation_calls=ValidationCalls(seconds=0.5)), 0.001)
    assert alone.between_steps_removed_s == 0.0 < both.between_steps_removed_s
    assert both.step_removed_s == alone.step_removed_s == 0.001
