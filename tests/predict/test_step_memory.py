"""Memory of a step by batch size, from tracked steps."""

import pytest

from flatout.predict.step_memory import Tracked, fit_steps

GIB = 1 << 30


def tracked(batch: int, activations: float, fixed: float = 2.0) -> Tracked:
    return Tracked(batch, {"parameter": int(fixed * GIB), "activation": int(activations * GIB)})


def test_two_batch_sizes_give_the_line() -> None:
    line = fit_steps([tracked(4, 8.0), tracked(8, 16.0)])
    assert line.measured and line.passes.base_bytes == 2 * GIB and line.passes.slope_bytes == 2 * GIB
    assert line.largest(80 * GIB) == int((79 / 1.05 - 2) / 2)
    assert line.at(line.largest(80 * GIB)) <= 80 * GIB < line.at(line.largest(80 * GIB) + 1)


def test_one_batch_size_is_divided_by_the_kinds_of_its_tensors() -> None:
    line = fit_steps([tracked(1, 70.0, fixed=4.0)])
    assert not line.measured and line.passes.slope_bytes == 70 * GIB
    assert line.largest(80 * GIB) == 1  # a second patch does not fit


def test_weights_that_do_not_fit_leave_no_batch() -> None:
    assert fit_steps([tracked(1, 1.0, fixed=30.0)]).largest(24 * GIB) == 0


def test_an_unknown_batch_size_is_refused() -> None:
    with pytest.raises(ValueError, match="known batch size"):
        fit_steps([Tracked(0, {"parameter": 1})])


def test_the_optimizer_s_own_peak_is_the_least_whatever_the_batch() -> None:
    steps = [
        Tracked(1, {"parameter": 4 * GIB, "activation": GIB}, whole_bytes=20 * GIB),
        Tracked(2, {"parameter": 4 * GIB, "activation": 2 * GIB}, whole_bytes=20 * GIB),
    ]
    line = fit_steps(steps)
    assert line.passes.slope_bytes == GIB and line.at(4) == line.at(1) > 20 * GIB
    assert line.largest(16 * GIB) == 0 and line.largest(80 * GIB) == int(79 / 1.05 - 4)


def test_the_forward_pass_bounds_batches_far_beyond_the_tracked_ones() -> None:
    """At 4 and 8 samples gradients of the weights are the peak, at 40 the activations."""
    kinds = {b: {"parameter": 8 * GIB, "activation": b * GIB // 8} for b in (4, 8)}
    line = fit_steps([Tracked(b, held, forward_bytes=(4 + b) * GIB) for b, held in kinds.items()])
    assert line.at(4) == round((8 * GIB + GIB // 2) * 1.05) + GIB and line.at(40) == round(44 * GIB * 1.05) + GIB
    assert line.largest(80 * GIB) == int(79 / 1.05 - 4)
