"""A stand-in for a function of C stays unbound in a class."""

import functools

from flatout.probe.unbound import Unbound


def test_it_is_called_without_self() -> None:
    def double(value: int) -> int:
        """Twice."""
        return 2 * value

    class Holder:
        function = Unbound(double)

    assert Holder().function(4) == 8 and Holder.function.__name__ == "double"


def test_one_that_is_wrapped_again_calls_the_outer_function() -> None:
    def plain() -> str:
        return "plain"

    inner = Unbound(plain)

    @functools.wraps(inner)
    def outer() -> str:
        return f"outer of {inner()}"

    assert Unbound(outer)() == "outer of plain"
