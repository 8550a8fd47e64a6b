"""Settings of a step that could be faster, mostly on a GPU. Only a trial shows their gain, so none leads."""

from __future__ import annotations

from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.results import OPPORTUNITY, Evidence, Finding
from flatout.units import percent


def mixed_precision(run: MeasuredRun) -> Finding | None:
    """Float32 throughout, on a GPU with tensor cores for 16 bits."""
    process = run.process
    kind = process.half_type
    if not _fills_kernels(run) or process.param_dtype != "float32" or process.in_half or kind is None:
        return None
    scaler = "" if kind == "bfloat16" else ", with torch.amp.GradScaler"
    return _opportunity(
        run,
        "mixed_precision",
        "the model computes in float32 on a GPU that has tensor cores for 16 bits",
        f"with torch.autocast('cuda', dtype=torch.{kind}): around the forward pass and the loss{scaler}",
        "weights are float32 and autocast was not used before the first step",
    )


def double_precision(run: MeasuredRun) -> Finding | None:
    """Weights in float64, where no kernel trace tells what that costs: with one it is the cause ``wide_dtype``."""
    computing = run.ledger.share("forward") + run.ledger.share("backward")
    if run.process.param_dtype != "float64" or not isinstance(run.operators, str) or computing < MATERIAL_SHARE:
        return None
    return _opportunity(
        run,
        "double_precision",
        "the model computes in 64-bit floats",
        "model.float(), and the batches as well, unless the training needs the precision",
        f"weights are float64; what that costs is not known, because {run.operators}",
    )


def tf32(run: MeasuredRun) -> Finding | None:
    """Float32 matrix products without TF32, on a GPU that has it."""
    process = run.process
    if not _fills_kernels(run) or process.tf32 is not False or process.param_dtype != "float32":
        return None
    if process.in_half or not process.has_tf32:
        return None
    return _opportunity(
        run,
        "tf32",
        "float32 matrix products do not use TF32",
        "torch.set_float32_matmul_precision('high') before the training",
        f"the GPU has it (compute capability {process.capability:.1f}), and it is off",
    )


def memory_format(run: MeasuredRun) -> Finding | None:
    """Convolutions on tensor cores whose weights are laid out channels first."""
    process = run.process
    cores = process.in_half or process.tf32
    if not _fills_kernels(run) or process.convolutions is None or process.channels_last is not False or not cores:
        return None
    if process.half_type is None or run.model_layouts:  # timed: a cause, or no gain
        return None
    layout = "channels_last" if process.convolutions == 2 else "channels_last_3d"
    return _opportunity(
        run,
        "memory_format",
        "convolutions on tensor cores get their pixels channels first",
        f"model.to(memory_format=torch.{layout}), and the batches as well",
        f"the weights of the first {process.convolutions}-D convolution are not {layout}",
    )


def not_compiled(run: MeasuredRun) -> Finding | None:
    """A model on a GPU without torch.compile."""
    if not _computes(run) or run.process.compiled is not False:
        return None
    return _opportunity(
        run,
        "compile",
        "the model is not compiled",
        "model = torch.compile(model); it costs minutes at the start, and every new shape costs some again",
        "torch.compile had compiled nothing by the first step",
    )


def _computes(run: MeasuredRun) -> bool:
    """True if computation on a GPU is a material part of the time."""
    return bool(run.uses_gpu) and run.ledger.share("forward") + run.ledger.share("backward") >= MATERIAL_SHARE


def _fills_kernels(run: MeasuredRun) -> bool:
    """True if its kernels are, too, as far as they were traced: faster ones speed up nothing else."""
    share = _kernels_share(run)
    return _computes(run) and (share is None or share >= MATERIAL_SHARE)


def _kernels_share(run: MeasuredRun) -> float | None:
    operators = run.operators
    if isinstance(operators, str) or not operators.on_device or not run.ledger.window_s:
        return None
    return min(operators.kernels_s * run.ledger.steps.count / run.ledger.window_s, 1.0)


def _opportunity(run: MeasuredRun, id: str, title: str, how: str, seen: str) -> Finding:
    share, kernels = run.ledger.share("forward") + run.ledger.share("backward"), _kernels_share(run)
    text = f"{seen}; forward and backward take {percent(share)} of the time"
    if kernels is not None:
        text += f", kernels {percent(kernels)}"
    return Finding(id=id, kind=OPPORTUNITY, title=title, how=how, evidence=(Evidence(text, {"compute": share}),))
