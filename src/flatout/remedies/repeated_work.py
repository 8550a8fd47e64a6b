"""Remedies for what a step computes again."""

from __future__ import annotations

from pathlib import PurePath

from flatout.predict.context import Context
from flatout.predict.step_changes import without_repeated_work
from flatout.remedies.proposal import IDENTICAL, NUMERICS, Proposal, remedy
from flatout.results import Cause

# By the reason: what is computed again, and how it is done once. ``{}``: the operator.
_ONCE = {
    "parametrization": (
        "make the parametrized weight once in a step",
        "with torch.nn.utils.parametrize.cached(): around what uses the module more than once in a step",
    ),
    "gradient": (
        "take each gradient once in a step",
        "u_x, u_t = torch.autograd.grad(u, (x, t), torch.ones_like(u), create_graph=True) in one call, and use these "
        "wherever they are needed; of one input, all its columns from one gradient",
    ),
    "": (
        "compute {} once in a step",
        "keep the first result in a variable: logits = model(x), then logits.detach() for the metric; masks and tables "
        "that do not change belong into __init__",
    ),
}


@remedy(("repeated_work",), NUMERICS, risk="low")
def compute_once(context: Context, cause: Cause) -> Proposal | None:
    """Keep what a step has computed, in place of computing it again."""
    work = context.run.repeated_work
    if work is None or isinstance(work, str):
        return None
    first = work.lines[0]
    where = f" ({PurePath(first.file).name}:{first.line})" if first.file else ""
    what, how = _ONCE[first.reason if first.reason in _ONCE else ""]
    return Proposal(
        title=what.format(first.operator) + where,
        change=without_repeated_work(context, work.with_backward),
        least=without_repeated_work(context, 0.7 * work.with_backward),
        most=without_repeated_work(context, min(1.2 * work.with_backward, 1.0)),
        how=how,
        basis="measured time of operators that ran with the same inputs before in one step, and of their backward "
        "passes",
        memory_bytes=0,
    )


_REPORTED_IN = 10  # steps: once


@remedy(("reported_passes",), IDENTICAL, risk="low")
def report_in_some_steps(context: Context, cause: Cause) -> Proposal | None:
    """Compute what is only reported in some steps."""
    values = context.run.read_values
    if values is None:
        return None
    where = f" ({PurePath(values.lines[0].file).name}:{values.lines[0].line})" if values.lines else ""
    part = values.part * (1.0 - 1.0 / _REPORTED_IN)
    return Proposal(
        title=f"compute what is only reported in every {_REPORTED_IN}th step{where}",
        change=without_repeated_work(context, part),
        least=without_repeated_work(context, 0.7 * part),
        most=without_repeated_work(context, min(1.2 * part, 1.0)),
        how=f"if step % {_REPORTED_IN} == 0: around the pass and what reads it; where no gradient is taken in it, with "
        "torch.no_grad() around it",
        basis="measured time of the operators of one step that lead to such numbers, and of nothing else",
        memory_bytes=0,
    )


@remedy(("repeated_rows",), NUMERICS, risk="low")
def split_weight(context: Context, cause: Cause) -> Proposal | None:
    """Multiply each part of a row by its part of the weight, once, and add what comes out."""
    rows = context.run.repeated_rows
    if rows is None:
        return None
    where = f" ({PurePath(rows.lines[0].file).name}:{rows.lines[0].line})" if rows.lines else ""
    return Proposal(
        title=f"split the weight, and multiply what repeats once{where}",
        change=without_repeated_work(context, 0.9 * rows.part),
        least=without_repeated_work(context, 0.6 * rows.part),
        most=without_repeated_work(context, rows.part),
        how="layer(cat([state.repeat(n, 1), inputs], 1)) is F.linear(state, W[:, :s]) + F.linear(inputs, W[:, s:], b), "
        "with W = layer.weight: the second before the loop over time steps; for edges F.linear(nodes, W[:, :s])[ends]; "
        "a convolution with a kernel of size 1 likewise, by its channels",
        basis="measured time of these products, of what puts their rows together, and of their backward passes, in one "
        "step; a tenth of it is taken to stay",
        memory_bytes=0,
    )


@remedy(("activation_checkpointing",), IDENTICAL, risk="medium")
def keep_activations(context: Context, cause: Cause) -> Proposal | None:
    """Keep the activations that the backward pass needs."""
    work = context.run.repeated_work
    if work is None or isinstance(work, str) or not work.on_purpose:
        return None
    return Proposal(
        title="keep activations in memory, without checkpointing",
        change=without_repeated_work(context, work.on_purpose),
        least=without_repeated_work(context, 0.7 * work.on_purpose),
        most=without_repeated_work(context, min(1.2 * work.on_purpose, 1.0)),
        how="model.gradient_checkpointing_disable(), or gradient_checkpointing=False of TrainingArguments; call the "
        "function itself in place of torch.utils.checkpoint.checkpoint(function, ...)",
        settings={"activations_kept": True},
        basis="measured time of what is computed again in one step; how much memory it takes to keep it is not known",
        memory_bytes=None,
    )
