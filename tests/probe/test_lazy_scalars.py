"""A scalar that is read late behaves as the float that it stands for."""

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from flatout.probe.injections.scalars import LazyScalar

VALUE = -2.625


def lazy(value: float = VALUE) -> Any:
    return LazyScalar(torch.tensor(value), torch.Tensor.item)


@pytest.mark.parametrize(
    "operation",
    [
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.eq,
        operator.lt, operator.le, operator.gt, operator.ge,
    ],
)  # fmt: skip
def test_operations_with_numbers_give_what_they_give_with_a_float(operation: Callable[[Any, Any], Any]) -> None:
    for other in (0.75, 3, VALUE):
        assert float(operation(lazy(), other)) == operation(VALUE, other)
        assert float(operation(other, lazy())) == operation(other, VALUE)
    assert float(operation(lazy(), lazy(0.5))) == operation(VALUE, 0.5)


@pytest.mark.parametrize(
    "function", [operator.neg, operator.pos, abs, round, math.trunc, math.floor, math.ceil, hash, repr, str, float, int]
)
def test_functions_of_one_number_give_what_they_give_for_a_float(function: Callable[[Any], Any]) -> None:
    assert function(lazy()) == function(VALUE)


def test_powers_rounding_and_formats_read_the_value() -> None:
    assert lazy() ** 2 == VALUE**2 and 2 ** lazy(3.0) == 8.0
    assert round(lazy(), 1) == round(VALUE, 1) and f"{lazy():.1f}" == f"{VALUE:.1f}"


def test_copies_and_pickles_are_floats() -> None:
    for found in (pickle.loads(pickle.dumps(lazy())), copy.copy(lazy())):
        assert type(found) is float and found == VALUE


def test_sums_are_not_read_before_they_are_looked_at() -> None:
    reads = []
    scalar: Any = LazyScalar(torch.tensor(2.0), lambda tensor: reads.append(1) or tensor.item())
    total = (scalar + 1) * 2 - scalar
    assert not reads
    assert total == 4.0 and reads
