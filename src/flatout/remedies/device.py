"""The computation of a step, and reads of its results."""

from __future__ import annotations

from flatout.measure.account_ids import COMPUTE_ACCOUNTS
from flatout.measure.fusion import Fusible
from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.remedies.proposal import IDENTICAL, NUMERICS, Proposal, remedy
from flatout.results import Cause
from flatout.units import duration, size

# Compute capability with TF32 units (CUDA C++ Programming Guide, "Compute Capabilities").
_TF32_CORES = 8.0


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


@remedy(("compute_bound",), NUMERICS, risk="medium")
def mixed_precision(context: Context, cause: Cause) -> Proposal | None:
    """Compute in 16 bits where the GPU has the units for it."""
    # On CPUs it helps only with special instructions, whose presence is not recorded.
    if not context.run.uses_gpu:
        return None
    compute_s = cause.share * context.model.now.step_s
    return Proposal(
        title="compute in mixed precision, if it does not yet",
        # Halved traffic for memory-bound kernels and at least twice the rate for matrix products, but not for all.
        change=Change(step_removed_s=0.25 * compute_s),
        least=Change(),
        most=Change(step_removed_s=0.6 * compute_s),
        how="with torch.autocast('cuda', dtype=torch.bfloat16): loss = ...",
        settings={"autocast": "bf16"},
        recipe="training.precision=bf16",
        basis="share of computation only; the kernels were not measured in 16 bits",
        memory_bytes=0,
    )


@remedy(("compute_bound",), NUMERICS, risk="low")
def tf32(context: Context, cause: Cause) -> Proposal | None:
    """Let float32 matrix products use TF32."""
    process = context.run.process
    if not context.run.uses_gpu or process.tf32 is not False or (process.capability or 0.0) < _TF32_CORES:
        return None
    if process.param_dtype != "float32" or process.autocast is not None:
        return None
    compute_s = cause.share * context.model.now.step_s
    return Proposal(
        title="let float32 matrix products use TF32",
        change=Change(step_removed_s=0.2 * compute_s),
        least=Change(),
        most=Change(step_removed_s=0.6 * compute_s),
        how="torch.set_float32_matmul_precision('high') before the training",
        settings={"tf32": True},
        basis="share of computation only; how much of it is matrix products was not measured",
        memory_bytes=0,
    )


@remedy(("compute_bound",), NUMERICS, risk="low")
def channels_last(context: Context, cause: Cause) -> Proposal | None:
    """Lay pixels out channels last, as fast convolutions take them."""
    process = context.run.process
    if process.convolutions not in (2, 3) or process.channels_last is not False:
        return None
    layout = "channels_last" if process.convolutions == 2 else "channels_last_3d"
    compute_s = cause.share * context.model.now.step_s
    return Proposal(
        title=f"lay pixels out {layout}",
        # On GPUs it pays with tensor cores; on CPUs the library converts each time without it.
        change=shorter_step(0.1 * compute_s),
        least=Change(),
        most=shorter_step(0.4 * compute_s),
        how=f"model.to(memory_format=torch.{layout}); the batches as well",
        settings={"channels_last": True},
        basis="share of computation only; the kernels were not measured in this layout",
        memory_bytes=0,
    )


@remedy(("overhead_bound", "compute_bound", "small_batch"), NUMERICS, risk="medium")
def compile_model(context: Context, cause: Cause) -> Proposal | None:
    """Compile the model."""
    if context.run.process.compiled is not False:
        return None
    likely_s, most_s, basis = _fused(context, cause)
    return Proposal(
        title="compile the model with torch.compile",
        change=shorter_step(likely_s),
        least=Change(),
        most=shorter_step(most_s),
        how="model = torch.compile(model)",
        settings={"compile": "default"},
        basis=f"{basis}; compiling costs minutes at the start, and again at new shapes",
        memory_bytes=0,
    )


def _fused(context: Context, cause: Cause) -> tuple[float, float, str]:
    """Seconds of a step that compiling the model is likely to save, and can save at most; what that rests on."""
    operators = context.run.operators
    if isinstance(operators, str):
        basis = "nothing but the share of computation: without a kernel trace, only a trial shows it"
        return 0.0, 0.5 * cause.share * context.model.now.step_s, basis
    # The optimizer is not compiled with the model.
    of_model = 1.0 - context.run.seconds("optimizer") / context.run.seconds(*COMPUTE_ACCOUNTS)
    around_s, saved = operators.overhead_s * of_model, operators.fusible
    basis = _passed_on(saved)
    if around_s > 0:
        basis += f", and half of the {duration(around_s)} that pass around them is assumed to go"
    return 0.5 * around_s + saved.likely_s, 0.9 * around_s + saved.most_s, basis


def _passed_on(saved: Fusible) -> str:
    """A clause: what fused operators of the model need not write and read."""
    if not saved.bytes:
        return "in the traced step no pointwise operator of the model reads what another has written"
    return (
        f"in the traced step {saved.operators:,.0f} pointwise operators of the model pass {size(saved.bytes)} to one "
        f"another, which takes {duration(saved.most_s)}"
    )


_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")  # of torch.optim, those that take fused=True


@remedy(("small_batch", "compute_bound"), NUMERICS, risk="low")
def fused_optimizer(context: Context, cause: Cause) -> Proposal | None:
    """Update all weights in one kernel."""
    optimizer_s = context.run.seconds("optimizer") / context.model.batches
    if context.run.ledger.share("optimizer") < MATERIAL_SHARE:
        return None
    kind, operators = context.run.process.optimizer, context.run.operators
    if kind is not None and kind not in _FUSED:
        return None
    if not isinstance(operators, str) and any(one.short_name.startswith("_fused_") for one in operators.costliest):
        return None
    return Proposal(
        title="use the optimizer's fused form",
        change=shorter_step(0.4 * optimizer_s),
        least=Change(),
        most=shorter_step(0.8 * optimizer_s),
        how=f"torch.optim.{kind}(..., fused=True)" if kind else f"fused=True for {', '.join(_FUSED)}",
        settings={"optimizer_form": "fused"},
        basis="measured time of the optimizer; how much of it is the launching of kernels is not known",
        memory_bytes=0,
    )


@remedy(("compute_bound",), NUMERICS, risk="low")
def cudnn_benchmark(context: Context, cause: Cause) -> Proposal | None:
    """Let cuDNN try its convolution algorithms once for each shape."""
    process = context.run.process
    if not context.run.uses_gpu or process.convolutions is None or process.cudnn_benchmark is not False:
        return None
    compute_s = cause.share * context.model.now.step_s
    return Proposal(
        title="let cuDNN choose its algorithms by trying them",
        change=Change(step_removed_s=0.05 * compute_s),
        least=Change(),
        most=Change(step_removed_s=0.3 * compute_s),
        how="torch.backends.cudnn.benchmark = True  # shapes have to stay the same",
        settings={"cudnn_benchmark": True},
        basis="share of computation only; the algorithms that are used now are not known",
        memory_bytes=0,
    )
