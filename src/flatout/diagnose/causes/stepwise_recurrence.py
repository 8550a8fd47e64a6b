"""A cause inside the step: recurrent layers are called for one time step at a time."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import hottest
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import whole_sequences
from flatout.results import Cause, Evidence
from flatout.units import duration, percent


def _in_one_call(context: Context, found: Cause) -> str:
    title = f"{found.title[:1].upper()}{found.title[1:]}"
    return f"{title}: one call with all of them would save {percent(found.share)} of the time."


@cause(
    "training",
    # Many calls of few values are overhead, and what a larger batch would hide.
    hides=("overhead_bound", "small_batch", "too_many_threads", "too_few_threads"),
    sentence=_in_one_call,
)
def stepwise_recurrence(context: Context) -> Found | Lacks | None:
    """A recurrent layer is called for one time step after the other, though its inputs are known beforehand."""
    layers = context.run.stepwise_layers
    if context.fitted is None:
        return Lacks(NO_STEP)
    if not layers:
        return None
    first = layers[0]
    if first.call_s is None:
        return Lacks(f"{first.name} was not timed: {first.skipped}")
    usual, least, _ = whole_sequences(context, layers)
    share = context.model.recovered(usual)
    if context.model.recovered(least) < NOISE_SHARE:
        return None
    evidence = [
        Evidence(
            f"{layer.name} is called {layer.calls:,} times a step with one time step each, and no input of it is made "
            f"of what it gave; measured after the window, one call with all of them takes {percent(layer.part)} of "
            f"the time ({percent(layer.low)} to {percent(layer.high)}), a single one {duration(layer.call_s)}, both "
            "passes",
            {"calls": layer.calls, "part": layer.part, "call_s": layer.call_s},
        )
        for layer in layers
        if layer.call_s is not None
    ]
    return Found(
        title=f"{first.name} is called {first.calls:,} times in a step, for one time step each",
        share=share,
        confidence=0.85,
        evidence=(*evidence[:3], *hottest(context.run.lines("forward"), 2)),
    )
