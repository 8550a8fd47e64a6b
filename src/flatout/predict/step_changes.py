"""Changes of the step itself."""

from __future__ import annotations

from dataclasses import replace

from flatout.measure.gradients import UnusedGradients
from flatout.predict.context import Context
from flatout.predict.pipeline import Change

# Of a layer's backward pass, that takes two products of one size: one for its input, one for its weights.
_OF_WEIGHTS = 0.5


def shorter_step(saved_s: float) -> Change:
    """The change that takes this time of the training thread, on a core, out of each step."""
    return Change(step_removed_s=saved_s, step_cpu_removed_s=saved_s)


def removed(context: Context, part: float) -> Change:
    """The change that takes this part of a step's own time away, waits excluded."""
    return shorter_step(min(part, 1.0) * context.model.now.step_s)


def without_debug_code(context: Context) -> tuple[str, Change] | None:
    """The kind of code for debugging that takes most of the time, and the change that leaves it out."""
    run = context.run
    name = max(run.debug_code, key=lambda name: run.debug_code[name].share, default=None)
    if name is None or context.fitted is None:
        return None
    return name, shorter_step(run.debug_code[name].share * run.ledger.window_s / context.fitted.batches)


def rethreaded(context: Context, part: float) -> Change:
    """The same by another number of threads: the CPU time stays, as far as is known."""
    return replace(removed(context, part), step_cpu_removed_s=0.0)


def fewer_positions(context: Context, share: float) -> Change:
    """The change that takes this share of a batch's positions away.

    The kernels of forward pass, loss and backward pass are assumed to take time in proportion to the positions;
    attention takes more than that. What passes around them, and the optimizer, stays.
    """
    run = context.run
    if run.padding is None or isinstance(run.padding, str):
        return Change()
    computed_s = run.seconds("forward", "loss", "backward") / context.model.batches
    if not isinstance(run.operators, str) and run.operators.computed_s > 0:
        computed_s *= max(1.0 - run.operators.overhead_s / run.operators.computed_s, 0.0)
    return shorter_step(share * run.padding.part * computed_s)


def without_gradients(context: Context, gradients: UnusedGradients) -> Change:
    """The change that leaves unused gradients out: as measured, or by the number of their elements."""
    if gradients.tried is not None:
        return removed(context, gradients.tried.gain if gradients.tried.proven else 0.0)
    backward_s = context.run.seconds("backward") / context.model.batches
    return shorter_step(_OF_WEIGHTS * gradients.part * backward_s)
