"""Sentences on what the last steps of a profile measured, for evidence and for the basis of predictions."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.units import counted, duration, percent

_AFTER = "measured after the window"
_DISTURBED = 1.2  # of a step as it is: one that has its input cannot take longer, other work does that


def with_the_input_there(context: Context) -> str | None:
    """How long a step takes whose batch is already there; None: that was not measured."""
    replayed, model = context.run.last_steps.replayed, context.fitted
    if replayed is None or model is None:
        return None
    now_s = max(model.now.total_s - model.now.between_steps_s, 0.0)
    busy = "" if replayed.idle else ", though workers were still fetching"
    took = f"{duration(replayed.step_s)} ({duration(replayed.low_s)} to {duration(replayed.high_s)}{busy})"
    disturbed = ""
    if replayed.low_s > now_s or replayed.step_s > _DISTURBED * now_s:
        disturbed = ": longer than before, as other work disturbed it"
    return f"{_AFTER}: with the input already there a step takes {took}, now {duration(now_s)}{disturbed}"


def bounding(context: Context, change: Change) -> str | None:
    """What bounds the prediction of a change to the input; None: the change is of the step, or nothing was measured."""
    ceiling = context.run.last_steps.ceiling
    if ceiling is None or context.fitted is None or change.step_removed_s or change.between_steps_removed_s:
        return None
    now_s = context.fitted.now.total_s - context.fitted.now.between_steps_s
    if ceiling.low_s > now_s or ceiling.step_s > _DISTURBED * now_s:
        return None
    return with_the_input_there(context)


def fixed_part(context: Context) -> str | None:
    """What of a step does not grow with the batch; None: no batch was doubled."""
    doubled = context.run.last_steps.doubled
    if doubled is None:
        return None
    if doubled.passes:
        samples = counted(round(doubled.samples), "sample")
        return (
            f"{_AFTER}: forward and backward pass of {samples}, and of twice as many: "
            f"{percent(doubled.fixed)} of a step ({percent(doubled.fixed_low)} to {percent(doubled.fixed_high)}) "
            "does not grow with the batch"
        )
    return (
        f"{_AFTER}: a step takes {duration(doubled.single_s)} with {doubled.samples:.3g} samples "
        f"and {duration(doubled.doubled_s)} with twice as many: {percent(doubled.fixed)} of it "
        f"({percent(doubled.fixed_low)} to {percent(doubled.fixed_high)}) does not grow with the batch"
    )
