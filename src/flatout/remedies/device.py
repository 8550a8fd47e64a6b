"""The computation of a step, and reads of its results."""

from __future__ import annotations

from flatout.measure.measured_run import MeasuredRun
from flatout.measure.roofline import NOT_MEASURED
from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import as_timed, fit_in_step, shorter_step
from flatout.remedies.proposal import IDENTICAL, NUMERICS, Proposal, remedy
from flatout.results import Cause
from flatout.units import duration


@remedy(("device_sync",), IDENTICAL, risk="low")
def fewer_blocking_reads(context: Context, cause: Cause) -> Proposal | None:
    """Keep values on the device until they are logged."""
    # The cause's share is the GPU's idle time, which is all that can be recovered.
    lost_s = cause.share * context.model.now.total_s
    site = context.run.lines("device_sync", 1)
    where = f" ({site[0].file}:{site[0].line})" if site else ""
    return Proposal(
        title=f"read values back from the GPU only when they are logged{where}",
        change=Change(step_removed_s=0.5 * lost_s),
        least=Change(),
        most=Change(step_removed_s=lost_s),
        how="total += loss.detach(); every N steps: total.item()",
        settings={"lazy_scalars": True},
        basis="idle time of the GPU beside blocking reads: an upper bound, half of it is predicted",
        memory_bytes=0,
    )


@remedy(("channels_first", "compute_bound"), NUMERICS, risk="low")
def channels_last(context: Context, cause: Cause) -> Proposal | None:
    """Lay pixels out channels last, as fast convolutions take them."""
    process = context.run.process
    if process.convolutions not in (2, 3) or process.channels_last is not False:
        return None
    layout = "channels_last" if process.convolutions == 2 else "channels_last_3d"
    timed = [one for one in context.run.model_layouts if one.seconds is not None]
    if timed and fit_in_step(context, timed):
        if not any(one.part < 1.0 for one in timed):
            return None
        change, least, most = as_timed(context, timed)
        basis = "both passes of the model in both layouts, measured on an input of the training"
    else:
        # On GPUs it pays with tensor cores; on CPUs the library converts each time without it.
        compute_s, based = _in_convolutions(context, cause)
        change, least, most = shorter_step(0.1 * compute_s), Change(), shorter_step(0.4 * compute_s)
        basis = f"{based}; the kernels were not measured in this layout"
    return Proposal(
        title=f"lay pixels out {layout}",
        change=change,
        least=least,
        most=most,
        how=f"model.to(memory_format=torch.{layout}); the batches as well",
        settings={"channels_last": True},
        basis=basis,
        memory_bytes=0,
    )


# Of torch.optim, those that take fused=True, with the reads and writes of all weights that an update in one pass makes.
_FUSED = {"Adam": 7, "AdamW": 7, "SGD": 5, "Adagrad": 5}


@remedy(("small_batch", "compute_bound"), NUMERICS, risk="low")
def fused_optimizer(context: Context, cause: Cause) -> Proposal | None:
    """Update all weights in one kernel."""
    optimizer_s = context.run.seconds("optimizer") / context.model.batches
    if context.run.ledger.share("optimizer") < MATERIAL_SHARE:
        return None
    kind, operators = context.run.process.optimizer, context.run.operators
    if kind not in _FUSED:
        return None
    if not isinstance(operators, str) and any(one.short_name.startswith("_fused_") for one in operators.costliest):
        return None
    usual, least, most = 0.4 * optimizer_s, 0.0, 0.8 * optimizer_s
    basis = "measured time of the optimizer; how much of it is the launching of kernels is not known"
    one_pass_s = _one_pass_s(context.run)
    if one_pass_s is not None:
        usual = max(optimizer_s - one_pass_s, 0.0)
        least, most = 0.5 * usual, max(optimizer_s - 0.5 * one_pass_s, usual)
        basis = "measured time of the optimizer, and one pass over its weights at the measured rate of memory"
    return Proposal(
        title="use the optimizer's fused form",
        change=shorter_step(usual),
        least=shorter_step(least),
        most=shorter_step(most),
        how=f"torch.optim.{kind}(..., fused=True)",
        settings={"optimizer_form": "fused"},
        basis=basis,
        memory_bytes=0,
    )


def _one_pass_s(run: MeasuredRun) -> float | None:
    """Seconds of an update that reads and writes all weights once, on a CPU; None: not known."""
    kind, weights, operators = run.process.optimizer, run.process.param_bytes, run.operators
    if run.uses_gpu or not weights or kind not in _FUSED:
        return None
    ceilings = NOT_MEASURED if isinstance(operators, str) else operators.ceilings
    if isinstance(ceilings, str):
        return None
    _, memory_bps = max(ceilings.memory)  # that of the largest memory: weights are in no cache from step to step
    return _FUSED[kind] * weights / memory_bps


@remedy(("compute_bound",), NUMERICS, risk="low")
def cudnn_benchmark(context: Context, cause: Cause) -> Proposal | None:
    """Let cuDNN try its convolution algorithms once for each shape."""
    process = context.run.process
    if not context.run.uses_gpu or process.convolutions is None or process.cudnn_benchmark is not False:
        return None
    compute_s, basis = _in_convolutions(context, cause)
    return Proposal(
        title="let cuDNN choose its algorithms by trying them",
        change=Change(step_removed_s=0.05 * compute_s),
        least=Change(),
        most=Change(step_removed_s=0.3 * compute_s),
        how="torch.backends.cudnn.benchmark = True  # shapes have to stay the same",
        settings={"cudnn_benchmark": True},
        basis=f"{basis}; the algorithms that are used now are not known",
        memory_bytes=0,
    )


def _in_convolutions(context: Context, cause: Cause) -> tuple[float, str]:
    """Seconds of a step that a better convolution shortens, and what that rests on: on a GPU, of its kernels."""
    operators = context.run.operators
    if isinstance(operators, str) or not operators.on_device:
        return cause.share * context.model.now.step_s, "share of computation only"
    kernels_s = sum(one.seconds for one in operators.work if one.kind == "convolution")
    took = f"convolutions take {duration(kernels_s)} of the {duration(operators.kernels_s)} in kernels of a traced step"
    return operators.in_kernels_s(kernels_s), took
