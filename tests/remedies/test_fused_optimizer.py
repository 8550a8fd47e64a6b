"""The fused form of an optimizer: whose, and what it gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.ranking import judge
from flatout.measure.costly_operators import CostlyOperator
from flatout.measure.roofline import Ceilings
from flatout.predict.context import Context
from flatout.remedies import propose
from tests.diagnose.views import healthy, small_operators
from tests.remedies.test_remedies import offered


@pytest.mark.parametrize(("kind", "how"), [("SGD", "torch.optim.SGD(..., fused=True)"), ("RMSprop", None)])
def test_the_fused_form_is_that_of_the_scripts_optimizer(kind: str, how: str | None) -> None:
    run = healthy(cpu=0.008, busy={"forward": 0.002, "optimizer": 0.008}, process={"optimizer": kind})
    context = Context.of(run)
    causes = judge(context)[0]
    found = [remedy.how for remedy in propose(context, causes)[0] if remedy.id == "fused_optimizer"]
    assert found == ([how] if how else [])
    evidence = next(one for one in causes if one.id == "small_batch").evidence[0].text
    assert evidence.startswith("the optimizer: ") and "exchange" not in evidence


@pytest.mark.parametrize(
    ("uses_gpu", "weights", "left_s"), [(False, 20_000_000, 0.005), (False, None, None), (True, 1, None)]
)
def test_on_a_cpu_the_fused_form_takes_as_long_as_memory(uses_gpu: bool, weights: int | None, left_s: Any) -> None:
    """Five passes over 20 MB at 20 GB/s, of 8 ms of a step."""
    process = {"optimizer": "Adagrad", "param_bytes": weights}
    view = healthy(cpu=0.008, busy={"forward": 0.002, "optimizer": 0.008}, process=process, uses_gpu=uses_gpu)
    ceilings = Ceilings(1, {}, {}, ((1 << 20, 9e10), (1 << 28, 2e10)))
    remedy = offered(replace(view, operators=small_operators(0.001, ceilings=ceilings)))["fused_optimizer"]
    assert ("rate of memory" in remedy.basis) is (left_s is not None)
    if left_s is not None:
        assert remedy.gain.predicted == pytest.approx(0.010 / (0.002 + left_s), rel=0.05)
        assert 1.0 < remedy.gain.low < remedy.gain.predicted < remedy.gain.high


def test_an_optimizer_that_is_fused_already_gets_no_fused_form() -> None:
    view = healthy(cpu=0.008, busy={"forward": 0.002, "optimizer": 0.008}, process={"optimizer": "Adam"})
    update = CostlyOperator("aten::_fused_adam_", "", "float32", "", 1.0, 0.007, None)
    for name, expected in ((update.name, False), ("aten::_foreach_add_", True)):
        operators = small_operators(0.001, costliest=(replace(update, name=name),))
        assert ("fused_optimizer" in offered(replace(view, operators=operators))) is expected
