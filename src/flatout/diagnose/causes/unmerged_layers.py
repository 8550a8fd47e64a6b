"""A cause inside the step: layers of the same input are computed one after the other."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import place
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import merged_layers
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, percent


def _as_one(context: Context, found: Cause) -> str:
    title = f"{found.title[:1].upper()}{found.title[1:]}"
    return f"{title}: one layer with the weights of all would save {percent(found.share)} of the time."


@cause("training", sentence=_as_one)
def unmerged_layers(context: Context) -> Found | Lacks | None:
    """Layers that take the same input, such as heads of attention in a list, are computed one after the other."""
    layers = context.run.unmerged_layers
    if context.fitted is None:
        return Lacks(NO_STEP)
    if not layers:
        return None
    first = layers[0]
    if first.apart_s is None:
        return Lacks(f"layers of one input were not timed: {first.skipped}")
    usual, least, _ = merged_layers(context, layers)
    if context.model.recovered(least) < NOISE_SHARE:
        return None
    evidence = [
        Evidence(
            f"{counted(one.groups, 'time')} a step, {one.layers} {kind(one.operator)} take one input of "
            f"{'x'.join(map(str, one.shape))}; measured after the window, both passes of one layer in their place take "
            f"{percent(one.part)} of their time ({percent(one.low)} to {percent(one.high)}), which is "
            f"{duration(one.apart_s)}",
            {"layers": one.layers, "groups": one.groups, "part": one.part, "apart_s": one.apart_s},
        )
        for one in layers
        if one.apart_s is not None
    ]
    return Found(
        title=f"{first.layers} {kind(first.operator)} of the same input are computed one after the other",
        share=context.model.recovered(usual),
        confidence=0.85,
        evidence=(
            *evidence[:2],
            *(
                Evidence(f"in {place(line)}, {line.function}", {"file": line.file, "line": line.line})
                for line in first.lines[:2]
            ),
        ),
    )


def kind(operator: str) -> str:
    """What such layers are called."""
    return "convolutions" if operator == "convolution" else "linear layers"
