"""Memory of the GPU as a function of the batch size: memory(b) = base + slope x b.

Where a batch was doubled after the window, the slope is measured. Otherwise one run shows one point of that line: the
part that does not grow with the batch is bounded from the model, at least its weights, and at most weights, gradients
and two moments of the optimizer (Adam, 32 bits) with the libraries' own memory. The rest of the memory in use grows
with the batch: activations, their gradients, the batch itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from flatout.measure.measured_run import MeasuredRun

# Weights, gradients and Adam's two moments.
_MOST_COPIES = 4
# Memory that the allocator takes for a byte of tensors, at the most: it cannot use what lies between blocks.
_ALLOCATED = 1.2
# CUDA's context and the libraries' workspaces.
_CONTEXT_BYTES = 1 << 30


@dataclass(frozen=True)
class DeviceMemory:
    """Memory in use at one batch size, and bounds of the part that does not grow with the batch.

    Attributes:
        batch_size: of the measured run.
        used_bytes: in use then, the most.
        total_bytes: of the GPU, without what other processes hold there.
        base_low: least that does not grow with the batch.
        base_high: most of it.
    """

    batch_size: int
    used_bytes: int
    total_bytes: int
    base_low: int
    base_high: int

    def at(self, batch_size: int) -> tuple[int, int]:
        """Least and most bytes at another batch size: the larger the base, the less grows."""
        factor = batch_size / self.batch_size
        bounds = [base + factor * (self.used_bytes - base) for base in (self.base_high, self.base_low)]
        return round(min(bounds)), round(max(bounds))

    def fits(self, batch_size: int) -> bool:
        """True if the lower bound fits; a trial settles the rest."""
        return self.at(batch_size)[0] <= self.total_bytes


def device_memory(run: MeasuredRun) -> DeviceMemory | None:
    """Fit to a run; None without a GPU, its memory in use, or a known batch and model.

    The memory in use is what the driver says, less what PyTorch holds beyond its tensors, where that was recorded: a
    larger batch takes that first.
    """
    usage, loader, weights = run.usage, run.loading, run.process.param_bytes
    room = run.gpu_room_bytes
    if not run.uses_gpu or usage.gpu_memory_used_bytes is None or not room:
        return None
    if loader is None or not loader.settings.batch_size or weights is None:
        return None
    used = usage.gpu_memory_used_bytes if run.gpu_needed_bytes is None else run.gpu_needed_bytes
    doubled = run.last_steps.doubled
    if doubled is not None and doubled.bytes_per_sample is not None:
        growing = doubled.bytes_per_sample * loader.settings.batch_size
        return DeviceMemory(
            loader.settings.batch_size,
            used,
            room,
            min(max(round(used - _ALLOCATED * growing), weights), used),
            min(max(round(used - growing), weights), used),
        )
    return DeviceMemory(
        loader.settings.batch_size,
        used,
        room,
        min(weights, used),
        min(_MOST_COPIES * weights + _CONTEXT_BYTES, used),
    )
