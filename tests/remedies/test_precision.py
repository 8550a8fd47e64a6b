"""What other number formats are predicted to give, from traced kernels and the rates of the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.ranking import judge
from flatout.measure.kernel_work import KernelWork
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.roofline import Ceilings
from flatout.predict.context import Context
from flatout.remedies import propose
from flatout.results import Remedy
from tests.diagnose.views import healthy, small_operators

# A product in float32 at 50 TFLOP/s, in bfloat16 at 800, in TF32 at 400; convolutions use TF32 as they are.
CEILINGS = Ceilings(
    threads=16,
    product_flops={"float32": 5e13, "bfloat16": 8e14, "tf32": 4e14},
    convolution_flops={"float32": 1.2e14, "bfloat16": 2.4e14},
    memory=((1 << 28, 4e12),),
)
GPU = {"param_dtype": "float32", "capability": 9.0, "tf32": False, "autocast": None, "compiled": True}


def offered(work: tuple[KernelWork, ...], **process: Any) -> dict[str, Remedy]:
    """Of a step of 10 ms that is all kernels."""
    operators = small_operators(0.0, on_device=True, work=work, ceilings=CEILINGS)
    run: MeasuredRun = replace(healthy(cpu=0.001, uses_gpu=True, process=GPU | process), operators=operators)
    context = Context.of(run)
    return {remedy.id: remedy for remedy in propose(context, judge(context)[0])[0]}


def product(seconds: float, efficiency: float = 1.0, kind: Any = "matrix", dtype: str = "float32") -> KernelWork:
    rate = 5e13 if kind == "matrix" else 1.2e14
    return KernelWork(kind, dtype, seconds, 10.0, efficiency * seconds * rate, 1e6)


def test_products_at_full_speed_shorten_as_the_rates_say() -> None:
    found = offered((product(0.008), KernelWork("memory", "float32", 0.002, 5.0, 0.0, 8e9)))
    # 8 ms at an eighth in TF32; half of the difference at the least.
    assert found["tf32"].gain.predicted == pytest.approx(10 / (10 - 7), rel=0.02)
    assert 1.2 < found["tf32"].gain.low <= 10 / (10 - 3.5)
    # A sixteenth in bfloat16, and the memory's part.
    assert found["mixed_precision"].gain.predicted > found["tf32"].gain.predicted
    assert "80% of its computation" in found["tf32"].basis


def test_products_that_are_far_from_the_rates_promise_little() -> None:
    slow = offered((product(0.008, efficiency=0.01), KernelWork("memory", "float32", 0.002, 5.0, 0.0, 8e9)))
    assert slow["tf32"].gain.low < 1.0 < slow["tf32"].gain.predicted < 1.8


def test_convolutions_have_tf32_already_and_gain_what_16_bits_add() -> None:
    found = offered((product(0.010, kind="convolution"),))
    assert "tf32" not in found
    assert found["mixed_precision"].gain.high == pytest.approx(2.0, rel=0.2)  # and the spread


def test_what_computes_in_16_bits_already_is_offered_neither() -> None:
    assert not {"mixed_precision", "tf32"} & set(offered((product(0.010, dtype="float16"),)))
    assert not {"mixed_precision", "tf32"} & set(offered((product(0.010),), autocast="bfloat16"))


def test_kernels_that_are_no_products_need_no_tf32() -> None:
    found = offered((KernelWork("memory", "float32", 0.010, 5.0, 0.0, 4e10),))
    assert "tf32" not in found
    assert found["mixed_precision"].gain.low < 1.0


def test_without_a_rate_in_the_format_half_the_time_is_the_most() -> None:
    work = (replace(product(0.010), flops=None, bytes=None),)
    assert offered(work)["tf32"].gain.high == pytest.approx(2.0, rel=0.2)  # and the spread


def test_the_type_is_one_that_the_gpu_has_units_for() -> None:
    work = (product(0.010),)
    t4 = offered(work, capability=7.5)["mixed_precision"]
    assert t4.settings == {"autocast": "fp16"} and "float16" in t4.how and "GradScaler" in t4.how
    assert offered(work, capability=9.0)["mixed_precision"].settings == {"autocast": "bf16"}
    assert not {"mixed_precision", "tf32"} & set(offered(work, capability=6.1))
    assert "tf32" not in offered(work, capability=7.5)


def test_where_no_kernels_were_traced_only_the_share_of_computation_counts() -> None:
    """As in a container without CUPTI: the operators' own times are the host's."""
    operators = small_operators(0.0, on_device=False, work=(product(0.010),), ceilings=CEILINGS)
    run = replace(healthy(cpu=0.001, uses_gpu=True, process=GPU), operators=operators)
    context = Context.of(run)
    found = {remedy.id: remedy for remedy in propose(context, judge(context)[0])[0]}
    for id in ("mixed_precision", "tf32"):
        assert found[id].basis == "share of computation only; the kernels were not traced" and found[id].gain.low < 1.0


def test_a_trace_without_kernels_in_its_step_promises_nothing() -> None:
    operators = small_operators(0.010, on_device=True, kernels_s=0.0, work=())
    assert operators.in_kernels_s(1.0) == 0.0


def on_cpu(bfloat16: float | None, *work: KernelWork) -> dict[str, Remedy]:
    """Of a step of 10 ms on a CPU that has this many FLOP/s in bfloat16, for 1e12 in float32."""
    rates = {"float32": 1e12} | ({} if bfloat16 is None else {"bfloat16": bfloat16})
    ceilings = Ceilings(2, rates, rates, ((1 << 26, 1e10),))
    context = Context.of(replace(healthy(cpu=0.001), operators=small_operators(0.0, work=work, ceilings=ceilings)))
    return {remedy.id: remedy for remedy in propose(context, judge(context)[0])[0]}


def test_a_cpu_computes_in_16_bits_where_that_was_measured_to_be_faster() -> None:
    work = KernelWork("convolution", "float32", 0.010, 10.0, 1e10, 1e4)
    remedy = on_cpu(3e12, work)["mixed_precision"]
    # A third of the time of products at full speed is left; half of what is saved at the least.
    assert remedy.gain.predicted == pytest.approx(3.0, rel=0.05) and remedy.gain.low <= 1.5
    assert remedy.settings == {"autocast": "bf16"} and "torch.autocast('cpu', dtype=torch.bfloat16)" in remedy.how
    for rate in (None, 1.1e12, 2e10):
        assert "mixed_precision" not in on_cpu(rate, work)
    assert "mixed_precision" not in on_cpu(3e12, replace(work, dtype="bfloat16"))
