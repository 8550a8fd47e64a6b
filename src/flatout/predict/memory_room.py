"""How much of the memory in which a training computes is free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flatout.measure.measured_run import MeasuredRun


@dataclass(frozen=True)
class MemoryRoom:
    """The memory of the GPU, or of the host where the training computes there.

    Attributes:
        total_bytes: that the training may use.
        free_bytes: left of it, at the least.
    """

    total_bytes: int
    free_bytes: int

    @property
    def used_share(self) -> float:
        """0..1."""
        return 1.0 - self.free_bytes / self.total_bytes


def memory_room(run: MeasuredRun) -> MemoryRoom | None:
    """What is free; None: it was not measured."""
    if run.uses_gpu:
        total, used = run.gpu_room_bytes, run.gpu_needed_bytes
        free = None if total is None or used is None else total - used
    else:
        memory = run.machine.get("memory")
        sizes = [memory.get(name) for name in ("total_bytes", "limit_bytes")] if isinstance(memory, Mapping) else []
        total = min((size for size in sizes if isinstance(size, int)), default=None)
        free = run.usage.available_bytes
    if not total or free is None:
        return None
    return MemoryRoom(total, min(max(free, 0), total))
