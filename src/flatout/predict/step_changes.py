"""Changes of the step itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from flatout.measure.gradients import DiscardedGradients, UnusedGradients
from flatout.measure.layer_forms import BothForms
from flatout.measure.repeated_weights import JoinedCalls, RepeatedWeight
from flatout.measure.repeated_work import COMPUTING
from flatout.measure.stepwise_layers import StepwiseLayer
from flatout.predict.context import Context
from flatout.predict.pipeline import Change

# Of a layer's backward pass, that takes two products of one size: one for its input, one for its weights.
_OF_WEIGHTS = 0.5
_MOST_SAVED = 0.98  # of a step
_MOST_OF_PASSES = 1.5  # steps are longer at times; what takes more is not what the training computes
_LEAST_OF_MEASURED = 0.85  # what a module saves alone, it may not save beside the rest of a step


def shorter_step(saved_s: float) -> Change:
    """The change that takes this time of the training thread, on a core, out of each step."""
    return Change(step_removed_s=saved_s, step_cpu_removed_s=saved_s)


def less_computing(context: Context, saved_s: float) -> Change:
    """The same on as many cores as a step uses: its kernels have several threads."""
    now = context.model.now
    cores = max(now.main_cpu_s / now.step_s, 1.0) if now.step_s > 0 else 1.0
    return Change(step_removed_s=saved_s, step_cpu_removed_s=cores * saved_s)


def less_in_forward(context: Context, saved_s: float) -> Change:
    """The same in operators of the forward pass and its gradients: the forward passes of validation call them, too."""
    run, batches = context.run, context.model.batches
    computed_s = run.seconds("forward", "loss", "backward") / batches
    part = min(saved_s / computed_s, 1.0) if computed_s > 0 else 0.0
    between_s = part * min(run.validation_calls.seconds, run.seconds("validation")) / batches
    return replace(less_computing(context, saved_s), between_steps_removed_s=between_s)


def without_repeated_work(context: Context, part: float) -> Change:
    """The change that leaves this part of a step's operators out."""
    return less_computing(context, part * context.run.seconds(*COMPUTING) / context.model.batches)


def without_features(context: Context, seconds: float) -> Change:
    """The change that leaves out what frozen modules take of a step: at most the forward pass of the window."""
    return less_computing(context, min(seconds, context.run.seconds("forward", "loss") / context.model.batches))


def removed(context: Context, part: float) -> Change:
    """The change that takes this part of a step's own time away, waits excluded."""
    return less_computing(context, min(part, 1.0) * context.model.now.step_s)


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

    As measured with trimmed batches: in proportion to the positions, or where these saved more than their part, by a
    power of what stays. Else the kernels of forward pass, loss and backward pass are assumed to take time in proportion
    to them; attention takes more than that. What passes around the kernels, and the optimizer, stays.
    """
    run = context.run
    if run.padding is None or isinstance(run.padding, str):
        return Change()
    measured = run.last_steps.trimmed
    if measured is not None and run.padding.trimmed > 0:
        return removed(context, min(_saved_by(share, run.padding.trimmed, measured.saved), _MOST_SAVED))
    computed_s = run.seconds("forward", "loss", "backward") / context.model.batches
    if not isinstance(run.operators, str) and run.operators.computed_s > 0:
        computed_s *= max(1.0 - run.operators.overhead_s / run.operators.computed_s, 0.0)
    return less_computing(context, share * run.padding.part * computed_s)


def _saved_by(share: float, tried: float, saved: float) -> float:
    """What a share of the positions saves, of 1, where a tried one was measured.

    In proportion, some of the time does not depend on positions; a larger saving than the share itself means costs
    that grow faster than the positions do, which a straight line would extrapolate below zero.
    """
    if saved <= tried or share >= 1.0 or tried >= 1.0:
        return saved * share / tried
    power = math.log1p(-min(saved, _MOST_SAVED)) / math.log1p(-tried)
    return float(1.0 - (1.0 - share) ** power)


def without_gradients(context: Context, gradients: UnusedGradients | DiscardedGradients) -> Change:
    """The change that leaves these gradients out: as measured, or by the number of their elements.

    Passes that leave out discarded ones compute less, so a gain that the noise of their steps hides counts, too.
    """
    tried = gradients.tried
    if tried is not None:
        counts = tried.proven or isinstance(gradients, DiscardedGradients)
        return removed(context, max(tried.gain, 0.0) if counts else 0.0)
    backward_s = context.run.seconds("backward") / context.model.batches
    return shorter_step(_OF_WEIGHTS * gradients.part * backward_s)


def calls_to_join(context: Context, weight: RepeatedWeight) -> float:
    """Calls of the layers that one call could replace: those of a loop where the trace shows it."""
    operators = context.run.operators
    return weight.calls if isinstance(operators, str) or operators.loop is None else operators.loop.calls


def joined_calls(context: Context, weight: RepeatedWeight) -> tuple[Change, Change, Change]:
    """The change that computes many products with one weight as one; then the least and the most it may give.

    Of forward and backward pass, in the layers called as often (``part``), what the module around them saved where it
    was timed with all inputs in one call. Else overhead x (1 - 1 / calls) + kernels x (1 - time of one product of all
    inputs / time of one after the other): other operators than products are assumed to gain as these do; the least is
    half of that, and at the most, kernels take a third of that time. What else stands in the loop is done once.
    """
    run, operators = context.run, context.run.operators
    if isinstance(operators, str) or operators.computed_s <= 0:
        return Change(), Change(), Change()
    forward_s, optimizer_s = (run.seconds(account) / context.model.batches for account in ("forward", "optimizer"))
    calls, loop = calls_to_join(context, weight), operators.loop
    beside_s = 0.0
    if loop is not None:
        beside_s = max(loop.share * context.model.now.step_s - forward_s, 0.0) * (1.0 - 1.0 / calls)
    if isinstance(weight.module, JoinedCalls):
        module, computed_s = weight.module, weight.part * max(operators.computed_s - optimizer_s, 0.0)
        in_module_s = min(weight.uses * module.call_s, computed_s)  # the least: the rest may stand outside the loop
        usual_s, least_s, most_s = (
            beside_s + seconds * (1.0 - module.of(calls, part))
            for seconds, part in ((computed_s, module.part), (in_module_s, module.high), (computed_s, module.low))
        )
        return _shorter(context, usual_s, _LEAST_OF_MEASURED * least_s, most_s)
    overhead_s = operators.removable_overhead_s * max(1.0 - optimizer_s / operators.computed_s, 0.0)
    kernels_s = max(operators.computed_s - operators.overhead_s - optimizer_s, 0.0)
    joined = 1.0 if weight.joined is None else weight.joined

    def saved(joined: float) -> float:
        return beside_s + weight.part * (overhead_s * (1.0 - 1.0 / calls) + kernels_s * (1.0 - joined))

    most_s = saved(joined / 3) if joined < 1.0 else saved(1.0)
    return _shorter(context, saved(joined), 0.5 * saved(joined), most_s)


def whole_sequences(context: Context, layers: Sequence[StepwiseLayer]) -> tuple[Change, Change, Change]:
    """The change that calls recurrent layers once with all time steps; then the least and the most it may give.

    As measured of the layers alone, at the least. At the most, all of forward and backward pass gains as the layers do:
    what surrounds them in the loop is called once, too. Usually half of it does.
    """
    run = context.run
    passes_s = run.seconds("forward", "loss", "backward") / context.model.batches
    alone_s = min(sum(layer.saved_s(layer.part) for layer in layers), passes_s)
    least_s = min(sum(layer.saved_s(layer.high) for layer in layers), passes_s)
    most_s = max(alone_s, passes_s * (1.0 - min(layer.low for layer in layers)))
    return _shorter(context, (alone_s + most_s) / 2, _LEAST_OF_MEASURED * least_s, most_s)


def fit_in_step(context: Context, layers: Sequence[BothForms]) -> bool:
    """Whether layers take no longer, as they were timed, than the passes of a step that they are a part of."""
    passes_s = context.run.seconds("forward", "loss", "backward") / context.model.batches
    return sum(one.uses * one.seconds for one in layers if one.seconds is not None) <= _MOST_OF_PASSES * passes_s


def as_timed(context: Context, layers: Sequence[BothForms]) -> tuple[Change, Change, Change]:
    """The change that computes layers in the form that was timed, too; then the least and the most it may give."""
    passes_s = context.run.seconds("forward", "loss", "backward") / context.model.batches
    usual_s = min(sum(one.saved_s(one.part) for one in layers), passes_s)
    least_s = min(sum(one.saved_s(one.high) for one in layers), passes_s)
    most_s = min(sum(one.saved_s(one.low) for one in layers), passes_s)
    return _shorter(context, usual_s, _LEAST_OF_MEASURED * least_s, most_s)


def _shorter(context: Context, *saved_s: float) -> tuple[Change, Change, Change]:
    """Steps without these times, of which some remains in any case."""
    most_s = _MOST_SAVED * context.model.now.step_s
    usual, least, most = (shorter_step(min(seconds, most_s)) for seconds in saved_s)
    return usual, least, most
