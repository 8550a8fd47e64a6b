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

_PRODUCTS = ("matrix", "convolution")
# Of a product's least time, where the rate in the other format was not measured: half the bits, or tensor cores.
_UNMEASURED = 0.5
# Autocast leaves sums and losses in 32 bits, and adds conversions.
_HALVED = 0.5
_FASTER = 1.3  # a CPU's products in bfloat16: less is lost where values are converted


@dataclass(frozen=True)
class _Saved:
    """Seconds of a step, in kernels: the least, the likely and the most that a format saves; and of how much."""

    low_s: float
    likely_s: float
    high_s: float
    of_s: float


@remedy(("compute_bound", "small_batch"), NUMERICS, risk="medium")
def mixed_precision(context: Context, cause: Cause) -> Proposal | None:
    """Compute in 16 bits where the GPU or the CPU has the units for it."""
    process, on_gpu = context.run.process, bool(context.run.uses_gpu)
    kind = process.half_type if process.capability is not None and on_gpu else "bfloat16"
    if process.in_half or kind is None:
        return None
    traced = _traced(context) if on_gpu else _on_cpu(context)
    if traced is None and not on_gpu:
        return None
    saved = None if traced is None else _in_16_bits(context, traced, kind)
    changes = _changes(context, cause, traced, saved, guess=(0.25, 0.6))
    if changes is None:
        return None
    short = "bf16" if kind == "bfloat16" else "fp16"
    scaler = "" if kind == "bfloat16" else "; scale the loss with torch.amp.GradScaler"
    return Proposal(
        title="compute in mixed precision",
        change=changes[1],
        least=changes[0],
        most=changes[2],
        how=f"with torch.autocast('{'cuda' if on_gpu else 'cpu'}', dtype=torch.{kind}): loss = ...{scaler}",
        settings={"autocast": short},
        recipe=f"training.precision={short}" if on_gpu else None,
        basis=_basis(traced, saved, ", memory-bound kernels by at most half"),
        memory_bytes=0,
    )


@remedy(("compute_bound", "small_batch"), NUMERICS, risk="low")
def tf32(context: Context, cause: Cause) -> Proposal | None:
    """Let float32 matrix products use TF32."""
    process = context.run.process
    if not context.run.uses_gpu or process.tf32 is not False or not process.has_tf32:
        return None
    if process.param_dtype != "float32" or process.autocast is not None:
        return None
    traced = _traced(context)
    saved = None if traced is None else _saved(_float32(traced, "matrix"), traced.ceilings, TF32, 1.0)
    changes = _changes(context, cause, traced, saved, guess=(0.2, 0.6))
    if changes is None:
        return None
    return Proposal(
        title="let float32 matrix products use TF32",
        change=changes[1],
        least=changes[0],
        most=changes[2],
        how="torch.set_float32_matmul_precision('high') before the training",
        settings={"tf32": True},
        basis=_basis(traced, saved),
        memory_bytes=0,
    )


def _traced(context: Context) -> Operators | None:
    """The operators of a step with their kernels; None: no kernels were traced, as where CUPTI is missing."""
    operators = context.run.operators
    return None if isinstance(operators, str) or not operators.on_device else operators


def _on_cpu(context: Context) -> Operators | None:
    """The same of a CPU on which products were measured to be faster in bfloat16; None: they were not."""
    operators = context.run.operators
    if isinstance(operators, str) or operators.on_device or isinstance(operators.ceilings, str):
        return None
    rates = (operators.ceilings.product_flops, operators.ceilings.convolution_flops)
    faster = [of["bfloat16"] > _FASTER * of["float32"] for of in rates if {"bfloat16", "float32"} <= of.keys()]
    return operators if any(faster) else None


def _changes(
    context: Context, cause: Cause, traced: Operators | None, saved: _Saved | None, guess: tuple[float, float]
) -> tuple[Change, Change, Change] | None:
    """The least, the likely and the most that a format changes; None: too little to be seen.

    Args:
        context: the measured run with its model.
        cause: whose share of a step counts without a trace.
        traced: operators with their kernels.
        saved: in these kernels.
        guess: without a trace, the likely part of the computation, and the most.
    """
    if traced is None or saved is None:
        compute_s = cause.share * context.model.now.step_s
        return Change(), shorter_step(guess[0] * compute_s), shorter_step(guess[1] * compute_s)
    low_s, likely_s, high_s = (traced.in_kernels_s(part) for part in (saved.low_s, saved.likely_s, saved.high_s))
    if high_s < NOISE_SHARE * context.model.now.total_s:
        return None
    return shorter_step(low_s), shorter_step(likely_s), shorter_step(high_s)


def _in_16_bits(context: Context, operators: Operators, kind: str) -> _Saved:
    products = _saved(_float32(operators, *_PRODUCTS), operators.ceilings, kind, 0.5)
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


def _basis(traced: Operators | None, saved: _Saved | None, more: str = "") -> str:
    if traced is None or saved is None:
        return "share of computation only; the kernels were not traced"
    return (
        f"float32 products take {duration(saved.of_s)} of the {duration(traced.kernels_s)} in kernels of a traced "
        f"step, {percent(traced.in_kernels_s(saved.of_s) / max(traced.computed_s, 1e-12))} of its computation; they "
        f"are taken to shorten as the rates measured on this device allow{more}"
    )
