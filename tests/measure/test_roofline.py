"""A step beside what its device gives, from hand-made operators and rates."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.measure.costly_operators import CostlyOperator
from flatout.measure.operator_costs import NOTHING, Cost
from flatout.measure.roofline import NOT_MEASURED, Ceilings, Roofline, measure_roofline, possible, read_ceilings

CEILINGS = Ceilings(2, {"float32": 100e9}, {"float32": 50e9}, ((1 << 20, 40e9), (1 << 26, 10e9)))
# 100 MFLOP a call: 1 ms at the rate of this device.
PRODUCT = Cost(100_000_000, 300_000, "float32")
CONVOLUTION = Cost(100_000_000, 300_000, "float32", convolution=True)
COPY = Cost(0, 100_000_000, "float32")  # 10 ms in large memory


def operator(name: str, seconds: float, cost: Cost | None, calls: float = 1.0) -> CostlyOperator:
    return CostlyOperator(f"aten::{name}", "8x8", "float32", name, calls, seconds, cost)


def judged(*operators: CostlyOperator, overhead_s: float = 0.0, queued: float = 0.0) -> Roofline | str:
    return measure_roofline(possible(operators, CEILINGS), CEILINGS, overhead_s, queued)


def found(answer: Roofline | str) -> Roofline:
    assert isinstance(answer, Roofline), answer
    return answer


def test_products_are_held_against_the_rate_of_products() -> None:
    step = found(judged(operator("mm", 0.020, PRODUCT, calls=10)))
    assert step.achieved == pytest.approx(0.5)
    assert step.left == pytest.approx(2.0)
    assert step.known == 1.0


def test_convolutions_are_held_against_the_rate_of_convolutions() -> None:
    assert found(judged(operator("convolution", 0.020, CONVOLUTION, calls=10))).achieved == pytest.approx(1.0)


def test_copies_are_held_against_the_rate_of_memory_of_their_size() -> None:
    assert found(judged(operator("copy_", 0.020, COPY))).achieved == pytest.approx(0.5)
    small = Cost(0, 1_000_000, "float32")  # fits a cache: 25 µs
    assert found(judged(operator("copy_", 0.020, small, calls=100))).achieved == pytest.approx(0.125)


def test_products_of_thin_matrices_are_held_against_the_rate_of_memory() -> None:
    thin = Cost(1_000_000, 100_000_000, "float32")
    assert found(judged(operator("mm", 0.020, thin))).achieved == pytest.approx(0.5)


def test_what_passes_around_kernels_counts() -> None:
    step = found(judged(operator("mm", 0.010, PRODUCT, calls=10), overhead_s=0.010))
    assert step.achieved == pytest.approx(0.5)
    assert step.lost is None


def test_the_operator_that_loses_most_is_named() -> None:
    slow = operator("mm", 0.030, PRODUCT, calls=10)
    step = found(judged(operator("convolution", 0.020, CONVOLUTION, calls=10), slow, overhead_s=0.001))
    assert step.lost is not None and step.lost.name == "aten::mm"


def test_calls_of_one_operator_with_several_shapes_count_together() -> None:
    slow = [operator("convolution", seconds, CONVOLUTION, calls=5) for seconds in (0.014, 0.015, 0.016)]
    step = found(judged(*slow, operator("mm", 0.022, PRODUCT, calls=15), overhead_s=0.008))
    assert step.lost is not None and (step.lost.name, step.lost.seconds) == ("aten::convolution", 0.016)
    assert step.lost_share == pytest.approx(0.015 / 0.030, abs=0.1)


def test_no_operator_is_better_than_its_ceiling() -> None:
    """A copy out of a cache makes up for nothing elsewhere."""
    cached = operator("copy_", 0.001, COPY)
    step = found(judged(cached, operator("mm", 0.020, PRODUCT, calls=10)))
    assert step.achieved == pytest.approx(11 / 21)


def test_views_take_time_and_need_none() -> None:
    assert found(judged(operator("view", 0.010, NOTHING), operator("mm", 0.010, PRODUCT, calls=10))).achieved == 0.5


def test_a_small_unknown_part_is_taken_to_run_as_the_rest() -> None:
    step = found(judged(operator("mm", 0.018, PRODUCT, calls=9), operator("sort", 0.002, None)))
    assert step.achieved == pytest.approx(0.5)
    assert step.known == pytest.approx(0.9)
    assert step.unknown == ("sort",)


def test_a_large_unknown_part_leaves_the_question_open() -> None:
    answer = judged(
        operator("mm", 0.010, PRODUCT, calls=10), operator("sort", 0.009, None), operator("fft", 0.001, None)
    )
    assert answer == "the cost of operators that take 50% of the time in kernels is not known (sort, fft)"


def test_a_type_whose_rate_was_not_measured_is_unknown() -> None:
    half = Cost(100_000_000, 300_000, "float16")
    assert "not known (mm)" in str(judged(operator("mm", 0.020, half)))


def test_a_training_without_cores_is_not_judged() -> None:
    answer = judged(operator("mm", 0.020, PRODUCT, calls=10), queued=0.3)
    assert answer == "the training thread waits 30% of the time for a core"


def test_products_far_above_the_reference_show_that_it_was_disturbed() -> None:
    assert "disturbed" in str(judged(operator("mm", 0.010, PRODUCT, calls=20)))
    assert found(judged(operator("mm", 0.010, PRODUCT, calls=11))).achieved == 1.0


def info(**changes: Any) -> dict[str, Any]:
    usual = {"device": "cpu", "threads": 2, "cores": 1.95, "product_flops": {"float32": 1e11}, "convolution_flops": {}}
    return {"ceilings": {**usual, "memory_bps": [[1 << 26, 1e10]], **changes}}


def test_rates_are_read_from_the_record() -> None:
    rates = read_ceilings(info(), cores=2)
    assert isinstance(rates, Ceilings)
    assert rates.memory == ((1 << 26, 1e10),)
    assert rates.flops(CONVOLUTION) == 1e11  # without a convolution's own rate


def test_rates_that_were_not_measured_say_why() -> None:
    assert read_ceilings({}, 2) == NOT_MEASURED
    assert (
        read_ceilings({"ceilings": {"failed": "RuntimeError: no memory"}}, 2)
        == f"{NOT_MEASURED} (RuntimeError: no memory)"
    )
    assert read_ceilings(info(memory_bps=[]), 2) == NOT_MEASURED


def test_rates_that_were_measured_on_taken_cores_are_not_used() -> None:
    assert "used the cores" in str(read_ceilings(info(cores=1.2), cores=2))
    assert isinstance(read_ceilings(info(cores=0.97, threads=16), cores=1), Ceilings)
    assert isinstance(read_ceilings(info(cores=0.1, device="cuda"), cores=2), Ceilings)
