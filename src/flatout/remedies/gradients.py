"""Gradients that nothing uses, left out."""

from __future__ import annotations

from flatout.measure.gradients import DiscardedGradients, UnusedGradients
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import removed, shorter_step, without_gradients
from flatout.probe.contract import KEPT_GRADIENTS, USED_GRADIENTS
from flatout.remedies.proposal import IDENTICAL, OPTIMISATION, Proposal, remedy
from flatout.results import Cause
from flatout.units import percent


@remedy(("unused_gradients",), IDENTICAL, risk="low")
def frozen_parameters(context: Context, cause: Cause) -> Proposal | None:
    """Do not compute gradients of parameters that are in no optimizer."""
    gradients = context.run.unused_gradients
    if not isinstance(gradients, UnusedGradients) or gradients.clipped:
        return None
    return _frozen(context, gradients, "")


@remedy(("unused_gradients",), OPTIMISATION, risk="low")
def frozen_clipped_parameters(context: Context, cause: Cause) -> Proposal | None:
    """The same where gradients are clipped by a norm that may contain the unused ones."""
    gradients = context.run.unused_gradients
    if not isinstance(gradients, UnusedGradients) or not gradients.clipped:
        return None
    return _frozen(context, gradients, "; a norm over all parameters, as clip_grad_norm_ takes it, gets smaller")


def _frozen(context: Context, gradients: UnusedGradients, warning: str) -> Proposal:
    whose = gradients.modules[0] if len(gradients.modules) == 1 else "them"
    return _left_out(
        context,
        gradients,
        f"freeze {whose}: no optimizer uses the gradients",
        "backbone.requires_grad_(False); with torch.no_grad() around it where nothing before it is trained; "
        f"or give its parameters to the optimizer, if they were meant to learn{warning}",
        None if warning else USED_GRADIENTS,
    )


@remedy(("discarded_gradients",), IDENTICAL, risk="low")
def kept_gradients(context: Context, cause: Cause) -> Proposal | None:
    """Compute those gradients of each backward pass that are used before they are set to zero."""
    gradients = context.run.discarded_gradients
    if not isinstance(gradients, DiscardedGradients):
        return None
    return _left_out(
        context,
        gradients,
        "leave the discarded gradients out of the backward passes",
        "critic.requires_grad_(False) before the pass that trains another network through it, and True again "
        "before its own; generator(z).detach(), or torch.no_grad() around it, where nothing before it is trained; "
        "torch.autograd.grad(loss, x) for the gradient of an input",
        KEPT_GRADIENTS,
    )


def _left_out(
    context: Context, gradients: UnusedGradients | DiscardedGradients, title: str, how: str, setting: str | None
) -> Proposal:
    one = gradients.tried
    backward_s = context.run.seconds("backward") / context.model.batches
    return Proposal(
        title=title,
        change=without_gradients(context, gradients),
        least=Change() if one is None else removed(context, max(one.low, 0.0)),
        most=shorter_step(gradients.part * backward_s) if one is None else None,
        how=how,
        settings={setting: True} if setting and not gradients.needed else None,
        basis=_basis(gradients),
        memory_bytes=0,
    )


def _basis(gradients: UnusedGradients | DiscardedGradients) -> str:
    if gradients.tried is not None:
        return "measured in steps after the window"
    part = percent(gradients.part)
    return f"half of the backward pass, for {part} of the gradients; not measured, since {gradients.not_tried}"
