"""Loops that take or write parts of a tensor, on runs whose traces showed them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.diagnose.causes.slices import slice_gradients, slice_writes
from flatout.measure.slice_lines import SliceLine
from flatout.results import NotMeasured
from tests.diagnose.test_causes_unneeded_work import found, remedies, run
from tests.diagnose.views import SLICES, WRITES, small_operators


def test_gradients_of_slices_taken_in_a_loop_are_named() -> None:
    context = run(operators=small_operators(0.001, slices=SLICES))
    cause = found(slice_gradients(context))
    assert cause.share == pytest.approx(0.4, abs=0.05)
    assert "each of the 168 slices along dimension 1 is a tensor of 64x168x48" in cause.evidence[0].text
    seen = run(operators=context.run.operators, taking_lines=(SliceLine("/home/me/model.py", 9, "forward", 168),))
    assert found(slice_gradients(seen)).evidence[1].text == "168 slices in model.py:9, forward"
    offered = remedies(context)["unbind"]
    assert "unbind(1)" in offered.title and offered.gain.predicted > 1.3
    # Each gradient of a slice is several operators: half of the overhead goes, too.
    called = run(operators=small_operators(0.004, slices=replace(SLICES, seconds=0.003, calls=0.5)))
    assert found(slice_gradients(called)).share == pytest.approx(0.5, abs=0.05)
    assert slice_gradients(run(operators=small_operators(0.001))) is None
    assert isinstance(slice_gradients(run(operators="no kernel trace was taken")), NotMeasured)


def test_parts_that_are_written_in_a_loop_are_named() -> None:
    lines = (SliceLine("/home/me/model.py", 22, "forward", 50),)
    context = run(operators=small_operators(0.001, writes=WRITES), writing_lines=lines)
    cause = found(slice_writes(context))
    assert cause.evidence[1].text == "50 writes in model.py:22, forward"
    # 4 ms of the copies, and a fifth of the overhead.
    assert cause.share == pytest.approx(0.42, abs=0.05)
    assert cause.title == "parts of tensors of 50x64x9,000 are written one after the other, 50 in a step"
    assert "each of the 50 writes copies the gradient of the whole" in cause.evidence[0].text
    offered = remedies(context)["write_at_once"]
    assert "torch.stack(outputs)" in offered.how and offered.gain.predicted > 1.4
    assert slice_writes(run(operators=small_operators(0.001))) is None
    assert isinstance(slice_writes(run(operators="no kernel trace was taken")), NotMeasured)
