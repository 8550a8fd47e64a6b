"""A GPU that other processes use as well: what of its memory is the training's, and who else computes on it.

A driver outside a container numbers processes in its own way. Only where it names the training process are the others
known to be others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flatout.measure.measured_run import GpuShared


def gpu_memory(chosen: Sequence[Mapping[str, Any]], index: int | None, main_pid: int) -> dict[str, Any]:
    """Fields of ``Usage`` on one GPU: the most memory that was in use, without other processes', and these.

    Args:
        chosen: samples of the window.
        index: of the GPU; None: the training has none, or it is not known.
        main_pid: the training process.
    """
    seen = [(sample, gpu) for sample in chosen for gpu in sample.get("gpus") or () if gpu["index"] == index]
    used = [gpu["memory_used"] for _, gpu in seen if gpu.get("memory_used") is not None]
    # What other processes hold, in the samples in which the driver names the training process.
    others = [(gpu, _others(sample, gpu, main_pid)) for sample, gpu in seen if main_pid in _held(gpu)]
    if not any(held for _, held in others):
        return {"gpu_memory_used_bytes": max(used, default=None)}
    own = [gpu["memory_used"] - sum(held) for gpu, held in others if gpu.get("memory_used") is not None]
    return {
        "gpu_memory_used_bytes": max(own, default=None),
        "gpu_shared": GpuShared(
            processes=max(len(held) for _, held in others),
            memory_bytes=max(sum(held) for _, held in others),
            share=sum(bool(held) for _, held in others) / len(others),
        ),
    }


def _held(gpu: Mapping[str, Any]) -> dict[int, int]:
    """Bytes that each process holds on a GPU, by its number."""
    return dict(gpu.get("processes") or ())


def _others(sample: Mapping[str, Any], gpu: Mapping[str, Any], main_pid: int) -> list[int]:
    """Bytes that each process outside the command holds."""
    command = {main_pid, *(entry["pid"] for entry in sample.get("processes") or ())}
    return [size for pid, size in _held(gpu).items() if pid not in command]
