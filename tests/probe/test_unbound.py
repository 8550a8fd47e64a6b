"""A stand-in for a function of C stays unbound in a class."""

from flatout.probe.unbound import Unbound


def test_it_is_called_without_self() -> None:
    def double(value: int) -> int:
        """Twice."""
        return 2 * value

    class Holder:
        function = Unbound(double)

    assert Holder().function(4) == 8 and Holder.function.__name__ == "double"
