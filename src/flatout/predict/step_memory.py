"""Memory of a training step as a function of the batch size, from tracked steps: memory(b) = base + slope x b."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# CUDA's context and the libraries' workspaces, which no tracker of tensors sees: 0.5 to 1 GiB on current GPUs.
CONTEXT_BYTES = 1 << 30
# What the caching allocator cannot use between blocks of other sizes.
FRAGMENTATION = 1.05
# Kinds that grow with the batch; weights, gradients, buffers and the optimizer's state do not.
GROWING = ("activation", "temp", "input/others", "other", "oth")


@dataclass(frozen=True)
class Tracked:
    """One tracked step.

    Attributes:
        batch_size: samples in its batch.
        kinds: kind of tensor -> bytes at the peak of forward and backward pass.
        whole_bytes: peak of the whole step; more than that of its passes where the optimizer needs more.
    """

    batch_size: int
    kinds: dict[str, int]
    whole_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """All kinds together, in the passes."""
        return sum(self.kinds.values())

    @property
    def growing_bytes(self) -> int:
        """Of the kinds that grow with the batch."""
        return sum(held for kind, held in self.kinds.items() if kind in GROWING)


@dataclass(frozen=True)
class StepMemory:
    """The line through tracked steps.

    Attributes:
        base_bytes: at batch size 0: weights, gradients, the optimizer's state.
        slope_bytes: for each sample.
        least_bytes: that the optimizer's step takes, whatever the batch.
        measured: whether two batch sizes were tracked; with one, the kinds of tensors show what grows.
    """

    base_bytes: float
    slope_bytes: float
    least_bytes: float
    measured: bool

    def at(self, batch_size: int) -> int:
        """Bytes that a GPU needs, its context and fragmentation included: a prediction."""
        tensors = max(self.base_bytes + self.slope_bytes * batch_size, self.least_bytes)
        return round(tensors * FRAGMENTATION) + CONTEXT_BYTES

    def largest(self, memory_bytes: int) -> int:
        """The largest batch size that fits; 0: none does."""
        room = (memory_bytes - CONTEXT_BYTES) / FRAGMENTATION
        if room < self.least_bytes or self.slope_bytes <= 0:
            return 0
        return max(int((room - self.base_bytes) // self.slope_bytes), 0)


def fit_steps(steps: Sequence[Tracked]) -> StepMemory:
    """Through the smallest and the largest batch; through one step, by the kinds of its tensors.

    Raises:
        ValueError: there is no step, or its batch size is unknown.
    """
    if not steps or min(step.batch_size for step in steps) < 1:
        raise ValueError("no step with a known batch size was tracked")
    low, high = min(steps, key=lambda step: step.batch_size), max(steps, key=lambda step: step.batch_size)
    # Where the whole step peaks above its passes, that peak is the optimizer's.
    least = min((step.whole_bytes for step in steps if step.whole_bytes > step.peak_bytes), default=0)
    if low.batch_size == high.batch_size:
        return StepMemory(low.peak_bytes - low.growing_bytes, low.growing_bytes / low.batch_size, least, False)
    slope = (high.peak_bytes - low.peak_bytes) / (high.batch_size - low.batch_size)
    return StepMemory(low.peak_bytes - slope * low.batch_size, slope, least, True)
