"""Findings of a run other than causes: risks and opportunities that cost no time now, and so never lead."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from flatout.diagnose.chance import at_chance
from flatout.diagnose.opportunities import double_precision, memory_format, mixed_precision, not_compiled, tf32
from flatout.measure.measured_run import MeasuredRun
from flatout.results import OPPORTUNITY, RISK, Evidence, Finding
from flatout.units import counted, duration, percent, size

# Allocators and caches fluctuate by tens of MiB; a leak shows only beyond that, in a window long enough for a slope.
_LEAST_GROWTH_BYTES = 64 << 20
_LEAST_WINDOW_S = 20.0
_LEAST_STEPS = 20  # memory goes up and down within a step
# A day: a leak that takes longer to fill the memory is ended by a restart first.
_SOON_S = 24 * 3600.0
# The allocator keeps what it had once; the last twentieth is what a larger sample or a fragment takes.
_FULL, _IDLE = 0.95, 0.5
_OFTEN = 0.2  # of the samples


@dataclass(frozen=True)
class BadVersion:
    """A library version that is known to be slow.

    Attributes:
        package: its name.
        version: a pattern of the whole version.
        needs_gpu: whether only trainings on a GPU are concerned.
        what: what is slow, and when.
        how: what to do.
        since: when the entry was written.
    """

    package: str
    version: str
    needs_gpu: bool
    what: str
    how: str
    since: str


BAD_VERSIONS = (
    BadVersion(
        "torch",
        r"2\.9\.[01](\+.*)?",
        True,
        "Conv3d in 16 bits may run without its cuDNN kernel: slower, far more memory (pytorch issues 166643, 174051)",
        "torch 2.10 or newer, or 2.9.1 with cuDNN 9.15 or newer, where the model has Conv3d layers",
        "2026-11",
    ),
)


def memory_growth(run: MeasuredRun) -> Finding | None:
    """The training's processes grow steadily: retained tensors, lists that workers copy page by page."""
    growth, window_s = run.usage.memory_growth_bps, run.ledger.window_s
    if run.ledger.steps.count < _LEAST_STEPS or window_s < _LEAST_WINDOW_S:
        return None
    if growth is None or growth * window_s / 2 < _LEAST_GROWTH_BYTES:
        return None
    left = run.usage.available_bytes
    if left is not None and left / growth > _SOON_S:
        return None
    full = "" if left is None else f"; the {size(left)} that are left are gone in {duration(left / growth)}"
    return Finding(
        id="memory_growth",
        kind=RISK,
        title="the training's memory grows all the time",
        how="keep numbers, not tensors with their graph (loss.item()); arrays instead of lists in a Dataset",
        evidence=(Evidence(f"{size(60 * growth)} a minute{full}", {"bytes_per_s": growth}),),
    )


def device_memory_full(run: MeasuredRun) -> Finding | None:
    """Nearly all of the GPU's memory is taken: a larger batch or sample does not fit."""
    share = _device_share(run)
    if share is None or share < _FULL:
        return None
    return Finding(
        id="device_memory_full",
        kind=RISK,
        title="the GPU's memory is nearly full: a larger batch does not fit",
        how="gradient checkpointing, mixed precision, or a smaller batch with gradient accumulation",
        evidence=(_device_evidence(run, share),),
    )


def device_memory_idle(run: MeasuredRun) -> Finding | None:
    """More than half of the GPU's memory was never used."""
    share = _device_share(run)
    if share is None or share > _IDLE:
        return None
    return Finding(
        id="device_memory_idle",
        kind=OPPORTUNITY,
        title="more than half of the GPU's memory is not used",
        how="a larger batch, with the learning rate adapted, where the run is not starved; or a smaller GPU",
        evidence=(_device_evidence(run, share),),
    )


def gpu_shared(run: MeasuredRun) -> Finding | None:
    """Other processes compute on the training's GPU: it takes turns with them."""
    shared = run.usage.gpu_shared
    if shared is None or shared.share < _OFTEN:
        return None
    held = f", which hold {size(shared.memory_bytes)} of its memory" if shared.memory_bytes else ""
    text = (
        f"in {percent(shared.share)} of the samples, up to {counted(shared.processes, 'process', 'processes')} "
        f"outside the command{held}"
    )
    values: dict[str, float | int | str] = {
        "processes": shared.processes,
        "memory_bytes": shared.memory_bytes,
        "share": shared.share,
    }
    return Finding(
        id="gpu_shared",
        kind=RISK,
        title="other processes compute on the same GPU: kernels take turns, and all times here contain theirs",
        how="end them, or give the training a GPU of its own: nvidia-smi lists them; CUDA_VISIBLE_DEVICES chooses one",
        evidence=(Evidence(text, values),),
    )


def bad_version(run: MeasuredRun) -> Finding | None:
    """A library version that is known to be slow."""
    installed = {"torch": run.process.torch}
    for entry in BAD_VERSIONS:
        version = installed.get(entry.package)
        concerned = not entry.needs_gpu or bool(run.uses_gpu)
        if version is not None and concerned and re.fullmatch(entry.version, version):
            return Finding(
                id="bad_version",
                kind=RISK,
                title=f"{entry.package} {version} is known to be slow",
                how=entry.how,
                evidence=(Evidence(f"{entry.what} (noted {entry.since})", {"version": version}),),
            )
    return None


def metric_at_chance(run: MeasuredRun) -> Finding | None:
    """The training loss falls while validation stays at chance."""
    metrics, classes = run.metrics, run.process.outputs
    if metrics.train_loss is None or metrics.val_loss is None or metrics.val_accuracy is None:
        return None
    if classes is None or classes < 2:
        return None
    text = at_chance(metrics.train_loss, metrics.val_loss, metrics.val_accuracy, classes)
    if text is None:
        return None
    values = {"train_loss": metrics.train_loss, "val_loss": metrics.val_loss, "val_accuracy": metrics.val_accuracy}
    return Finding(
        id="metric_at_chance",
        kind=RISK,
        title="the training learns, but its validation is at chance",
        how="compare class names with their indices in both sets: train.class_to_idx == val.class_to_idx",
        evidence=(Evidence(text, {**values, "classes": classes}),),
    )


_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_USE_CUDA_DSA",
    "TORCH_SHOW_CPP_STACKTRACES",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTHONMALLOC",
    "PYTHONDEVMODE",
    "compute-sanitizer",
)


def debug_environment(run: MeasuredRun) -> Finding | None:
    """Environment variables for debugging are set."""
    found = {name: value for name, value in run.experiments.debugging.items() if name in _VARIABLES}
    if not found:
        return None
    shown = ", ".join(f"{name}={value}" for name, value in found.items())
    return Finding(
        id="debug_environment",
        kind=OPPORTUNITY,
        title="environment variables for debugging are set",
        how=f"unset {' '.join(found)}",
        evidence=(Evidence(f"{shown}; what they cost was not measured", dict(found)),),
    )


def _device_share(run: MeasuredRun) -> float | None:
    needed, room = run.gpu_needed_bytes, run.gpu_room_bytes
    return needed / room if run.uses_gpu and needed is not None and room else None


def _device_evidence(run: MeasuredRun, share: float) -> Evidence:
    used, room = run.usage.gpu_memory_used_bytes or 0, run.gpu_room_bytes or 0
    text = f"at the most {size(used)} of {size(room)}"
    text += " that other processes leave" if run.usage.gpu_shared is not None else ""
    values: dict[str, float | int | str] = {"used": used, "total": room}
    held, tensors = run.process.memory_reserved, run.process.memory_allocated
    if held is None or tensors is None:
        return Evidence(f"{text}, {percent(share)}", values)
    text += f": tensors took {size(tensors)}, and PyTorch held {size(held)} for them; without what it only held, "
    return Evidence(f"{text}{percent(share)}", values | {"allocated": tensors, "reserved": held})


# By id; risks first.
FINDINGS: dict[str, Callable[[MeasuredRun], Finding | None]] = {
    "memory_growth": memory_growth,
    "device_memory_full": device_memory_full,
    "gpu_shared": gpu_shared,
    "bad_version": bad_version,
    "metric_at_chance": metric_at_chance,
    "mixed_precision": mixed_precision,
    "double_precision": double_precision,
    "tf32": tf32,
    "memory_format": memory_format,
    "compile": not_compiled,
    "debug_environment": debug_environment,
    "device_memory_idle": device_memory_idle,
}


def find(run: MeasuredRun) -> tuple[Finding, ...]:
    """All findings of a run, in the order of ``FINDINGS``."""
    return tuple(found for function in FINDINGS.values() if (found := function(run)) is not None)
