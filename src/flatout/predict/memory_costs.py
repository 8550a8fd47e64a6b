"""Memory that settings add in /dev/shm and on the GPU; host memory is in ``host_memory``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flatout.measure.measured_run import MeasuredRun
from flatout.predict.device_memory import device_memory
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR, SETTINGS


@dataclass(frozen=True)
class MemoryCosts:
    """Bytes added by settings; negative if memory is freed, None if unknown.

    Attributes:
        shm_bytes: in /dev/shm, which holds batches on their way from workers.
        device_bytes: on one GPU; 0 without a GPU.
    """

    shm_bytes: int | None
    device_bytes: int | None


def memory_costs(run: MeasuredRun, settings: Mapping[str, Any]) -> MemoryCosts:
    """The memory that a remedy's settings add.

    Args:
        run: the measured run.
        settings: as ``flatout apply --set`` takes them.
    """
    return MemoryCosts(_shm(run, settings), _device(run, settings))


def _shm(run: MeasuredRun, settings: Mapping[str, Any]) -> int | None:
    """Workers x prefetch x bytes of a batch, after less before."""
    loader = run.loading
    if loader is None or not any(SETTINGS[name].in_queue for name in settings):
        return 0
    if loader.delivery.batch_bytes is None:
        return None
    depth = loader.settings.prefetch_factor or DEFAULT_PREFETCH_FACTOR
    before = loader.settings.num_workers * depth * loader.delivery.batch_bytes
    larger: float = settings.get("batch_size", loader.settings.batch_size or 1) / (loader.settings.batch_size or 1)
    workers: int = settings.get("num_workers", loader.settings.num_workers)
    ahead: int = settings.get("prefetch_factor", depth)
    return round(workers * ahead * loader.delivery.batch_bytes * larger - before)


def _device(run: MeasuredRun, settings: Mapping[str, Any]) -> int | None:
    if run.uses_gpu is False:
        return 0
    if not all(SETTINGS[name].device_memory_known for name in settings):
        return None
    if not any(SETTINGS[name].in_step for name in settings):
        return 0
    memory = device_memory(run)
    # The upper bound: a remedy reported to fit should fit.
    return memory.at(settings["batch_size"])[1] - memory.used_bytes if memory is not None else None
