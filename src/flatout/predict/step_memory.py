"""Memory of a training step as a function of the batch size, from tracked steps.

    memory(b) = max(base + slope x b, the same of the forward pass, least)

The peak of a step is the largest sum of the activations that are still held and the gradients that are already there.
In a small batch it lies at the end of the backward pass, where gradients are as large as weights and hardly anything
grows with the batch; in a large one it lies at its beginning, where all activations are held. The peak of forward and
backward pass is therefore no line but bends upwards, and a line through two small batches predicts too little for large
ones. The peak of the forward pass alone is a line in the batch size, and the other lies above it.
"""

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
        forward_bytes: peak until the model returned; 0: not tracked.
    """

    batch_size: int
    kinds: dict[str, int]
    whole_bytes: int = 0
    forward_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """All kinds together, in the passes."""
        return sum(self.kinds.values())

    @property
    def growing_bytes(self) -> int:
        """Of the kinds that grow with the batch."""
        return sum(held for kind, held in self.kinds.items() if kind in GROWING)


@dataclass(frozen=True)
class Line:
    """Bytes by batch size.

    Attributes:
        base_bytes: at batch size 0.
        slope_bytes: for each sample.
    """

    base_bytes: float
    slope_bytes: float

    def at(self, batch_size: float) -> float:
        """Bytes of tensors."""
        return self.base_bytes + self.slope_bytes * batch_size


@dataclass(frozen=True)
class StepMemory:
    """The lines through tracked steps.

    Attributes:
        passes: forward and backward pass; at batch size 0 weights, gradients, the optimizer's state.
        forward: forward pass alone, where it was tracked at two batch sizes and grows more with the batch.
        least_bytes: that the optimizer's step takes, whatever the batch.
        measured: whether two batch sizes were tracked; with one, the kinds of tensors show what grows.
    """

    passes: Line
    forward: Line | None
    least_bytes: float
    measured: bool

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines; the highest counts."""
        return (self.passes, self.forward) if self.forward else (self.passes,)

    def at(self, batch_size: int) -> int:
        """Bytes that a GPU needs, its context and fragmentation included: a prediction."""
        tensors = max(*(line.at(batch_size) for line in self.lines), self.least_bytes)
        return round(tensors * FRAGMENTATION) + CONTEXT_BYTES

    def largest(self, memory_bytes: int) -> int:
        """The largest batch size that fits; 0: none does."""
        room = (memory_bytes - CONTEXT_BYTES) / FRAGMENTATION
        growing = [line for line in self.lines if line.slope_bytes > 0]
        if room < self.least_bytes or not growing:
            return 0
        return max(min(int((room - line.base_bytes) // line.slope_bytes) for line in growing), 0)


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
        passes = Line(low.peak_bytes - low.growing_bytes, low.growing_bytes / low.batch_size)
        return StepMemory(passes, None, least, False)
    passes = _through((low.batch_size, low.peak_bytes), (high.batch_size, high.peak_bytes))
    forward = None
    if low.forward_bytes and high.forward_bytes:
        forward = _through((low.batch_size, low.forward_bytes), (high.batch_size, high.forward_bytes))
    steeper = forward is not None and forward.slope_bytes > passes.slope_bytes
    return StepMemory(passes, forward if steeper else None, least, True)


def _through(low: tuple[int, int], high: tuple[int, int]) -> Line:
    slope = (high[1] - low[1]) / (high[0] - low[0])
    return Line(low[1] - slope * low[0], slope)
