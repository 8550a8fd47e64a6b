"""What fused operators would not write and read, from hand-made steps."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.measure.costly_operators import Attribution
from flatout.measure.fusion import NOT_FUSIBLE, Fusible, fusible
from flatout.measure.operator_costs import NOTHING, Cost
from flatout.record.operator_inputs import Tensor

SHAPE = (1000, 250)
MB = 1_000_000
RESULT = Tensor.dense(SHAPE, "float32")  # 1 MB
POINTWISE = Cost(0, 2 * MB, "float32", reads=(SHAPE,), result=RESULT)
PRODUCT = Cost(10**9, 3 * MB, "float32", reads=(SHAPE, SHAPE), result=RESULT)


def step(*costs: Cost | None, of_model: list[bool] | None = None) -> Fusible:
    """Operators one after the other, each of which takes 1 ms."""
    rows = np.arange(len(costs))
    names = tuple(map(str, rows))
    inside = np.array(of_model or [True] * len(costs))
    attribution = Attribution(rows, costs, names, names)
    return fusible(attribution, rows, inside, rows, np.full(len(costs), 1e6), 1.0)


def test_a_value_that_is_passed_on_is_read_and_at_the_most_written_in_vain() -> None:
    found = step(POINTWISE, POINTWISE)
    assert found.likely_s == pytest.approx(0.0005)  # half of the bytes of the second
    assert found.most_s == pytest.approx(0.0010)  # and half of those of the first
    assert found.bytes == 2 * MB
    assert found.operators == 2


def test_a_chain_saves_at_each_link() -> None:
    assert step(POINTWISE, POINTWISE, POINTWISE).likely_s == pytest.approx(0.0010)


def test_views_do_not_interrupt_a_chain() -> None:
    assert step(POINTWISE, NOTHING, POINTWISE).likely_s == pytest.approx(0.0005)


@pytest.mark.parametrize("between", [PRODUCT, None, Cost(0, 2 * MB, "float32", reads=((7,),), result=RESULT)])
def test_products_unknown_operators_and_other_shapes_interrupt_a_chain(between: Cost | None) -> None:
    assert step(POINTWISE, between).likely_s == 0.0
    assert step(POINTWISE, PRODUCT, POINTWISE) == NOT_FUSIBLE


def test_the_optimizer_is_not_compiled_with_the_model() -> None:
    assert step(POINTWISE, POINTWISE, of_model=[True, False]) == NOT_FUSIBLE


def test_operators_inside_another_one_are_not_counted_again() -> None:
    rows = np.arange(3)
    names = ("0", "1", "2")
    attribution = Attribution(np.array([0, 0, 2]), (POINTWISE, None, POINTWISE), names, names)
    found = fusible(attribution, rows, np.ones(3, bool), attribution.owner, np.full(3, 1e6), 1.0)
    assert found.most_s == pytest.approx(0.0015)  # the first one has 2 ms
