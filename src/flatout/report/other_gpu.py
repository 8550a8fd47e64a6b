"""The training on another GPU: as lines, and as JSON."""

from __future__ import annotations

from typing import Any

from flatout.plans.gpu_parts import GpuPart
from flatout.plans.other_gpu import Memory, OtherGpu
from flatout.report.layout import wrap
from flatout.units import duration, factor, percent, size

WIDTH = 80
WORDS = {
    "matrix": ("products of matrices", "peak"),
    "convolution": ("convolutions", "peak"),
    "memory": ("kernels that memory bounds", "bandwidth"),
    "host": ("launches and other host code", "as here"),
    "input": ("waiting for input", "what the input gives"),
    "other": ("copies, validation and the rest", "as here"),
}


def lines(other: OtherGpu, width: int = WIDTH) -> list[str]:
    """For a terminal of that many columns, before the table of scenarios there."""
    gain, then_s = other.gain, other.step_s / other.gain.factor
    span = f"{factor(gain.low)} to {factor(gain.high)}"
    head = (
        f"On {_indefinite(other.then.name)} instead of the {other.now.name}: predicted throughput {factor(gain.factor)}"
        f" ({span}). flatout never measured this training there."
    )
    rows = [f"  {'of a step':<32}{'recorded':>12}{'predicted':>12}  scaled by"]
    for one in other.classes:
        words, by = WORDS[one.kind]
        rows.append(f"  {words:<32}{duration(one.now_s):>12}{duration(one.then_s):>12}  {by}")
    rows.append(f"  {'step':<32}{duration(other.step_s):>12}{duration(then_s):>12}")
    text = ["", *wrap(head, width), "", *rows, "", *_hanging(_memory(other.memory, other.then), width)]
    for note in other.notes:
        said = f"Assumed: {note}." if "not measured" not in note else f"{note[0].upper()}{note[1:]}."
        text += _hanging(said, width)
    return text + _hanging(f"Figures: {_figures(other.now)}; {_figures(other.then)}.", width)


def _figures(part: GpuPart) -> str:
    peaks = ", ".join(f"{name} {value / 1e12:g}" for name, value in part.peaks.items())
    by = f"measured by {part.sustained_by}" if part.sustained_by else "the usual, not measured"
    return (
        f"{part.name}: {part.bandwidth / 1e9:,.0f} GB/s, peak TFLOP/s {peaks} ({part.source}, {part.date:%Y-%m-%d}), "
        f"of which large products reach {percent(part.share_reached, decimals=0)} ({by})"
    )


def _memory(memory: Memory, part: GpuPart) -> str:
    if memory.used is None:
        return f"Memory: not measured in the recording; the {part.name} has {size(memory.total)}."
    uses = f"Memory: {size(memory.used)} in use at the most, PyTorch's cache included"
    if memory.fits:
        return f"{uses}: fits into {size(memory.total)}."
    if memory.fits is None:
        return f"{uses}: may not fit into {size(memory.total)}, of which at least {size(memory.usable)} are usable."
    return f"{uses}: does not fit into {size(memory.total)}. A smaller batch changes the step: record that one."


def _indefinite(name: str) -> str:
    return f"{'an' if name[0] in 'AHLR' else 'a'} {name}"


def _hanging(text: str, width: int) -> list[str]:
    return ["  " + line for line in wrap(text, width - 2)]


def to_dict(other: OtherGpu) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "kind": "prediction",
        "recorded_on": _part(other.now),
        "predicted_on": _part(other.then),
        "step_s": other.step_s,
        "predicted_step_s": other.step_s / other.gain.factor,
        "throughput_factor": {"predicted": other.gain.factor, "low": other.gain.low, "high": other.gain.high},
        "classes": [{"kind": one.kind, "recorded_s": one.now_s, "predicted_s": one.then_s} for one in other.classes],
        "memory": {
            "used_bytes": other.memory.used,
            "usable_bytes": other.memory.usable,
            "total_bytes": other.memory.total,
            "fits": other.memory.fits,
        },
        "notes": list(other.notes),
    }


def _part(part: GpuPart) -> dict[str, Any]:
    return {
        "name": part.name,
        "memory_bytes": part.memory_bytes,
        "bandwidth_bps": part.bandwidth,
        "peak_flops": dict(part.peaks),
        "share_reached": part.share_reached,
        "share_measured_by": part.sustained_by,
        "source": part.source,
        "date": f"{part.date:%Y-%m-%d}",
    }
