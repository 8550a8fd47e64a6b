"""Causes inside the step: loops that take or write one part of a tensor after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from flatout.diagnose.cause import Found, Lacks, cause
from flatout.diagnose.causes.needless_operators import takes, traced
from flatout.diagnose.evidence import hottest
from flatout.measure.slice_lines import SliceLine
from flatout.measure.thresholds import DOMINANT_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import shorter_step
from flatout.results import Cause, Evidence
from flatout.units import counted, percent


def _fills_zeros(context: Context, found: Cause) -> str:
    return f"Backward passes fill zeros for {found.title}: that takes {percent(found.share)} of the time."


@cause(
    "training",
    # Large fills by several threads wait for each other and for memory; each slice's gradient is several operators.
    hides=("overhead_bound", "too_many_threads", "too_few_threads"),
    hides_from=DOMINANT_SHARE,
    sentence=_fills_zeros,
)
def slice_gradients(context: Context) -> Found | Lacks | None:
    """A loop takes slices of a tensor that needs a gradient, and the gradient of each is as large as the whole."""
    operators = traced(context)
    if isinstance(operators, Lacks):
        return operators
    slices = operators.slices
    share = context.model.recovered(shorter_step(operators.of_slices_s))
    if slices is None or share < NOISE_SHARE:
        return None
    shape = "x".join(map(str, slices.shape))
    listed = slices.dimension is None
    what = "parts by lists of indices" if listed else "slices"
    values: dict[str, float | int | str] = {"slices": slices.slices, "seconds": slices.seconds}
    if slices.dimension is not None:
        values["dimension"] = slices.dimension
    along = "" if listed else f" along dimension {slices.dimension}"
    return Found(
        title=f"{slices.slices:,} {what} of a tensor of {shape}, one after the other",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"the gradient of each of the {slices.slices:,} {'parts' if listed else 'slices'}{along} is a tensor "
                f"of {shape}, mostly zeros, which is added to the others: "
                f"{percent(slices.seconds / operators.kernels_s)} of the time in kernels",
                values,
            ),
            *(_lines(context.run.taking_lines[:2], "slice") or hottest(context.run.lines("forward"), 2)),
        ),
    )


@cause(
    "training",
    # Each copy is new memory, as large as the whole.
    hides=("overhead_bound", "page_faults", "too_many_threads", "too_few_threads"),
    hides_from=DOMINANT_SHARE,
    sentence=takes,
)
def slice_writes(context: Context) -> Found | Lacks | None:
    """A loop writes parts of a tensor that needs a gradient, and the backward pass of each copies the whole."""
    operators = traced(context)
    if isinstance(operators, Lacks):
        return operators
    writes = operators.writes
    share = context.model.recovered(shorter_step(operators.of_writes_s))
    if writes is None or share < NOISE_SHARE:
        return None
    shape = "x".join(f"{size:,}" for size in writes.shape)
    in_kernels = f"{percent(writes.seconds / operators.kernels_s)} of the time in kernels"
    return Found(
        title=f"parts of tensors of {shape} are written one after the other, {writes.writes:,} in a step",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"the backward pass of each of the {writes.writes:,} writes copies the gradient of the whole, {shape}: "
                f"{in_kernels}; these passes and the writes are {percent(writes.calls)} of all operators",
                {"writes": writes.writes, "seconds": writes.seconds, "calls": writes.calls},
            ),
            *_lines(context.run.writing_lines[:3], "write"),
        ),
    )


def _lines(lines: Sequence[SliceLine], what: str) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            f"{counted(line.parts, what)} in {PurePath(line.file).name}:{line.line}, {line.function}",
            {"file": line.file, "line": line.line, f"{what}s": line.parts},
        )
        for line in lines
    )
