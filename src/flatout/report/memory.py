"""The memory of a step by batch size, as lines of at most 80 columns, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from flatout.predict.step_memory import CONTEXT_BYTES, FRAGMENTATION, StepMemory, Tracked
from flatout.report.layout import wrap
from flatout.units import percent, size

FAR = 16.0  # times the largest tracked batch, beyond which a prediction is an upper limit only


def lines(line: StepMemory, steps: Sequence[Tracked], gpus: Mapping[str, int]) -> list[str]:
    """For a terminal.

    Args:
        line: the memory by batch size.
        steps: that were tracked.
        gpus: memory of a GPU as the user wrote it -> bytes.
    """
    how = "two batch sizes were tracked" if line.measured else "one was tracked: kinds of tensors tell what grows"
    least = f", at least {size(line.least_bytes)}" if line.least_bytes else ""
    text = [f"memory(b) = {size(line.passes.base_bytes)} + {size(line.passes.slope_bytes)} x b{least}"]
    if line.forward:
        of_forward = f"{size(line.forward.base_bytes)} + {size(line.forward.slope_bytes)} x b"
        text.append(f"and at least {of_forward}, in the forward pass")
    text += [
        f"tensors only; {how}",
        "",
        f"  {'batch':>8}{'tensors, tracked':>20}{'of a GPU, predicted':>24}",
    ]
    text += [f"  {step.batch_size:>8}{size(step.peak_bytes):>20}{size(line.at(step.batch_size)):>24}" for step in steps]
    text += ["", *(f"  {name:>8}: largest batch {line.largest(held):,}" for name, held in gpus.items()), ""]
    lost = percent(FRAGMENTATION - 1)
    text += [f"Predicted: with {size(CONTEXT_BYTES)} for CUDA and its libraries, and {lost} for fragmentation."]
    tracked = max(step.batch_size for step in steps)
    far = max((line.largest(held) / tracked for held in gpus.values()), default=0.0)
    if far > FAR:
        # The peak of a small batch may be that of the weights' gradients, which activations pass in a larger one.
        note = (
            f"The largest batches lie up to {far:,.0f} times beyond the tracked ones, where a sample may take more: "
            "take them as upper limits, and track a larger batch size."
        )
        text += wrap(note, 80)
    return text


def to_dict(line: StepMemory, steps: Sequence[Tracked], gpus: Mapping[str, int]) -> dict[str, Any]:
    """For ``--json``; arguments as of ``lines``."""
    return {
        "base_bytes": line.passes.base_bytes,
        "slope_bytes": line.passes.slope_bytes,
        "forward": asdict(line.forward) if line.forward else None,
        "least_bytes": line.least_bytes,
        "measured_slope": line.measured,
        "steps": [
            {
                "batch_size": step.batch_size,
                "peak_bytes": step.peak_bytes,
                "forward_bytes": step.forward_bytes or None,
                **step.kinds,
            }
            for step in steps
        ],
        "tracked_up_to": max(step.batch_size for step in steps),
        "largest": {name: line.largest(held) for name, held in gpus.items()},
    }
