"""Number formats: what 16 bits or TF32 would save in the kernels that were traced, at the rates of this device.

A kernel takes its least possible time and some more. In another format the least time changes as the rates do; whether
the rest changes with it is not known, so it stays in the low estimate and shrinks alike in the high one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flatout.measure.kernel_work import KernelWork
from flatout.measure.operator_costs import Cost
from flatout.measure.operators import Operators
from flatout.measure.roofline import Ceilings
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.probe.contract import TF32
from flatout.remedies.proposal import NUMERICS, Proposal, remedy
from flatout.results import Cause
from flatout.units import duration, percent

# Compute capability with TF32 units (CUDA C++ Programming Guide, "Compute Capabilities").
_TF32_CORES = 8.0
_HALF = ("float16", "bfloat16")
_PRODUCTS = ("matrix", "convolution")
# Of a product's least time, where the rate in the other format was not measured: half the bits, or tensor cores.
_UNMEASURED = 0.5
# Autocast leaves sums and losses in 32 bits, and adds conversions.
_HALVED = 0.5


@dataclass(frozen=True)
class _Saved:
    """Seconds of a step, in kernels: the least, the likely and the most that a format saves; and of how much."""

    low_s: float
    likely_s: float
    high_s: float
    of_s: float


@remedy(("compute_bound", "small_batch"), NUMERICS, risk="medium")
def mixed_precision(context: Context, cause: Cause) -> Proposal | None:
    """Compute in 16 bits where the GPU has the units for it."""
    # On CPUs it helps only with special instructions, whose presence is not recorded.
    process, operators = context.run.process, context.run.operators
    if not context.run.uses_gpu or process.param_dtype in _HALF or process.autocast in _HALF:
        return None
    if isinstance(operators, str):
        compute_s = cause.share * context.model.now.step_s
        likely, least, most = Change(step_removed_s=0.25 * compute_s), Change(), Change(step_removed_s=0.6 * compute_s)
        basis = "share of computation only; the kernels were not traced"
    else:
        saved = _in_16_bits(context, operators)
        if operators.in_kernels_s(saved.high_s) < NOISE_SHARE * context.model.now.total_s:
            return None
        likely, least, most = (
            shorter_step(operators.in_kernels_s(part)) for part in (saved.likely_s, saved.low_s, saved.high_s)
        )
        basis = _basis(saved, operators, "and half of what passes between them as half the bytes would")
    return Proposal(
        title="compute in mixed precision",
        change=likely,
        least=least,
        most=most,
        how="with torch.autocast('cuda', dtype=torch.bfloat16): loss = ...",
        settings={"autocast": "bf16"},
        recipe="training.precision=bf16",
        basis=basis,
        memory_bytes=0,
    )


@remedy(("compute_bound", "small_batch"), NUMERICS, risk="low")
def tf32(context: Context, cause: Cause) -> Proposal | None:
    """Let float32 matrix products use TF32."""
    process, operators = context.run.process, context.run.operators
    if not context.run.uses_gpu or process.tf32 is not False or (process.capability or 0.0) < _TF32_CORES:
        return None
    if process.param_dtype != "float32" or process.autocast is not None:
        return None
    if isinstance(operators, str):
        compute_s = cause.share * context.model.now.step_s
        likely, least, most = Change(step_removed_s=0.2 * compute_s), Change(), Change(step_removed_s=0.6 * compute_s)
        basis = "share of computation only; the kernels were not traced"
    else:
        saved = _saved(_float32(operators, "matrix"), operators.ceilings, TF32, 1.0)
        if operators.in_kernels_s(saved.high_s) < NOISE_SHARE * context.model.now.total_s:
            return None
        likely, least, most = (
            shorter_step(operators.in_kernels_s(part)) for part in (saved.likely_s, saved.low_s, saved.high_s)
        )
        basis = _basis(saved, operators)
    return Proposal(
        title="let float32 matrix products use TF32",
        change=likely,
        least=least,
        most=most,
        how="torch.set_float32_matmul_precision('high') before the training",
        settings={"tf32": True},
        basis=basis,
        memory_bytes=0,
    )


def _in_16_bits(context: Context, operators: Operators) -> _Saved:
    products = _saved(_float32(operators, *_PRODUCTS), operators.ceilings, "bfloat16", 0.5)
    # The optimizer goes on in 32 bits.
    memory_s = sum(one.seconds for one in _float32(operators, "memory"))
    memory_s = max(memory_s - context.run.seconds("optimizer") / context.model.batches, 0.0)
    return _Saved(
        products.low_s,
        products.likely_s + 0.5 * _HALVED * memory_s,
        products.high_s + _HALVED * memory_s,
        products.of_s,
    )


def _float32(operators: Operators, *kinds: str) -> list[KernelWork]:
    return [one for one in operators.work if one.kind in kinds and one.dtype == "float32"]


def _saved(work: Iterable[KernelWork], ceilings: Ceilings | str, dtype: str, size: float) -> _Saved:
    """What products save in another format, whose values take ``size`` times the bytes."""
    low = high = of = 0.0
    for one in work:
        of += one.seconds
        now_s, then_s = _possible_s(one, ceilings, one.dtype, 1.0), _possible_s(one, ceilings, dtype, size)
        part = _UNMEASURED if now_s is None or then_s is None else min(then_s / max(now_s, 1e-12), 1.0)
        high += (1.0 - part) * one.seconds
        low += (1.0 - part) * min(now_s if now_s is not None else 0.5 * one.seconds, one.seconds)
    return _Saved(0.5 * low, 0.5 * (low + high), high, of)


def _possible_s(work: KernelWork, ceilings: Ceilings | str, dtype: str, size: float) -> float | None:
    """The least time of all calls in a format; None: its rate was not measured."""
    if isinstance(ceilings, str) or work.flops is None or work.bytes is None or work.calls <= 0:
        return None
    flops, read = work.flops / work.calls, size * work.bytes / work.calls
    each_s = ceilings.possible_s(Cost(round(flops), round(read), dtype, convolution=work.kind == "convolution"))
    return None if each_s is None else work.calls * each_s


def _basis(saved: _Saved, operators: Operators, more: str = "") -> str:
    text = (
        f"float32 products take {duration(saved.of_s)} of the {duration(operators.kernels_s)} in kernels of a traced "
        f"step, {percent(operators.in_kernels_s(saved.of_s) / max(operators.computed_s, 1e-12))} of its computation, "
        "and are taken to shorten as the rates measured on this device allow"
    )
    return f"{text}, {more}" if more else text
