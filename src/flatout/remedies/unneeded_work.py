"""Computation that a step could do without, left out."""

from __future__ import annotations

import re

from flatout.measure.padding import Padding
from flatout.measure.repeated_weights import JoinedCalls
from flatout.predict.context import Context
from flatout.predict.step_changes import (
    calls_to_join,
    fewer_positions,
    joined_calls,
    removed,
    shorter_step,
)
from flatout.probe.settings import SETTINGS
from flatout.remedies.proposal import DATA, NUMERICS, OPTIMISATION, Proposal, remedy
from flatout.results import Cause
from flatout.units import percent

_TRIMMED = {
    "row": "end each batch with its longest row",
    "sample": "make the canvas as large as the largest sample of each batch",
}
_HOW_TO_TRIM = {
    "row": "pad in collate_fn: pad_sequence(rows, batch_first=True), or tokenizer.pad(rows); "
    "not padding='max_length' in the Dataset",
    "sample": "make the canvas in collate_fn: torch.zeros(len(pictures), channels, max(heights), max(widths))",
}
_OF_ATTENTION = (
    1.5  # power of the positions that a transformer's time may grow with: between its layers' and attention's
)
_MOST_OF_STEP = 0.97  # that sparse gradients save
_STAYING = 0.4  # of the rest of a step, that may be saved, too: six trainings saved up to as much
_PROPORTION = "the time of forward and backward pass is assumed to be in proportion to the positions"


@remedy(("padding_waste",), DATA, risk="low")
def trim_padding(context: Context, cause: Cause) -> Proposal | None:
    """Pad each batch to its longest row only."""
    padding = context.run.padding
    if not isinstance(padding, Padding) or not padding.fixed:
        return None
    positions = f"{padding.longest:,.0f} positions, not {padding.padded.mean():,.0f}"
    measured = context.run.last_steps.trimmed
    return Proposal(
        title=f"{_TRIMMED[padding.what]}: {positions}",
        change=fewer_positions(context, padding.trimmed),
        least=removed(context, measured.saved_low) if measured else fewer_positions(context, 0.5 * padding.trimmed),
        most=removed(context, measured.saved_high)
        if measured
        else fewer_positions(context, 1.0 - (1.0 - padding.trimmed) ** _OF_ATTENTION),
        how=f"{_HOW_TO_TRIM[padding.what]}. Results stay the same where the model masks padding",
        settings=_trimming(padding),
        basis="measured in steps after the window" if measured else f"{_measured(padding)}; {_PROPORTION}",
        memory_bytes=0,
    )


def _trimming(padding: Padding) -> dict[str, str] | None:
    """The setting that trims rows; None: samples lie on a canvas, or the tensor's place cannot be given."""
    shown = padding.evidence if padding.value is None else f"{padding.tensor}={padding.value}"
    if padding.sides or not re.fullmatch(SETTINGS["trim_padding"].form, shown):
        return None
    return {"trim_padding": shown}


@remedy(("padding_waste",), DATA, risk="low")
def group_by_length(context: Context, cause: Cause) -> Proposal | None:
    """Put rows of similar length into one batch."""
    padding = context.run.padding
    if not isinstance(padding, Padding) or not padding.mixed:
        return None
    also = f", and {_TRIMMED[padding.what]}" if padding.fixed else ""
    like = "size" if padding.sides else "length"
    return Proposal(
        title=f"put {padding.what}s of similar {like} into one batch{also}",
        change=fewer_positions(context, padding.grouped),
        least=fewer_positions(context, 0.5 * padding.grouped),
        most=fewer_positions(context, padding.share),
        how=f"a batch sampler that sorts chunks of, say, 50 shuffled batches by {like}, and shuffles the batches; "
        "group_by_length=True of transformers. Batches are no longer independent draws",
        basis=f"{_measured(padding)}, of whose positions {percent(padding.share)} are padding; "
        f"sorted among these {padding.what}s only; {_PROPORTION}",
        memory_bytes=0,
    )


def _measured(padding: Padding) -> str:
    rows = sum(len(rows) for rows in padding.rows)
    return f"{'sizes' if padding.sides else 'lengths'} of {rows} {padding.what}s"


@remedy(("unbatched_calls",), NUMERICS, risk="medium")
def one_batch(context: Context, cause: Cause) -> Proposal | None:
    """Call the layers once, on all inputs."""
    weight = context.run.repeated_weight
    if weight is None:
        return None
    change, least, most = joined_calls(context, weight)
    calls = calls_to_join(context, weight)
    measured = "" if weight.joined is None else ", and the measured time of one product and of many"
    basis = f"overhead of operators in the traced steps{measured}; others are assumed to gain as products do"
    if isinstance(weight.module, JoinedCalls):
        basis = f"both passes of the module, measured with {weight.module.calls} inputs one by one and in one call"
    return Proposal(
        title=f"call the layers once on {calls:,.0f} inputs, not {calls:,.0f} times",
        change=change,
        least=least,
        most=most,
        how="torch.stack or torch.cat the inputs, call, and split the result; torch.func.vmap(torch.func.grad(f)) "
        "for a gradient of each sample. Batch norm then sees all of them at once",
        basis=basis,
        memory_bytes=None,
    )


@remedy(("dense_gradients",), NUMERICS, risk="medium")
def sparse_embeddings(context: Context, cause: Cause) -> Proposal | None:
    """Gradients of embedding tables hold the rows of the batch only, with plain SGD."""
    run = context.run
    if isinstance(run.operators, str) or run.operators.dense is None:
        return None
    if run.process.optimizer is None:
        how = "p.data.add_(p.grad, alpha=-lr) adds the rows of a sparse gradient; another update by hand may not"
        return _sparse(context, how, None)
    if run.process.optimizer != "SGD":
        return None
    return _sparse(
        context,
        "the same updates where SGD has no momentum and no weight decay",
        {"sparse_embeddings": True},
    )


@remedy(("dense_gradients",), OPTIMISATION, risk="medium")
def sparse_optimizer(context: Context, cause: Cause) -> Proposal | None:
    """The same with an optimizer for sparse gradients in place of one that moves all rows in each step."""
    run = context.run
    if isinstance(run.operators, str) or run.operators.dense is None or run.process.optimizer in ("SGD", None):
        return None
    how = "SparseAdam or Adagrad for the tables, in an optimizer of their own: rows that a batch does not take stay"
    return _sparse(context, how, {"sparse_adam": True} if run.process.optimizer in ("Adam", "AdamW") else None)


def _sparse(context: Context, how: str, settings: dict[str, bool] | None) -> Proposal | None:
    operators = context.run.operators
    if isinstance(operators, str):
        return None
    saved_s = min(operators.of_tables_s, _MOST_OF_STEP * context.model.now.step_s)
    return Proposal(
        title="sparse gradients for the embedding tables",
        change=shorter_step(saved_s),
        least=shorter_step(0.7 * saved_s),
        most=shorter_step(saved_s + _STAYING * (operators.computed_s - saved_s)),
        how=f"nn.Embedding(..., sparse=True); {how}",
        settings=settings,
        basis="measured time in kernels on whole tables in the traced steps, and their part of what passes around them",
        memory_bytes=0,
    )


@remedy(("full_sort",), NUMERICS, risk="low")
def first_places(context: Context, cause: Cause) -> Proposal | None:
    """Find the first places of each row instead of sorting all of it."""
    operators = context.run.operators
    if isinstance(operators, str) or operators.sorts is None:
        return None
    sorts, saved_s = operators.sorts, operators.of_sorts_s
    all_s = operators.in_kernels_s(sorts.seconds)
    return Proposal(
        title=f"find the first {sorts.used:,} with topk, and sort only these",
        change=shorter_step(saved_s),
        least=shorter_step(0.5 * all_s),
        most=shorter_step(all_s),
        how=f"x.topk({sorts.used}, dim={sorts.dimension}, largest=False) in place of x.sort({sorts.dimension}) with a "
        "slice; largest=True where it is descending. Values are the same; of equal ones, other places may be given",
        basis="measured time of the sorts in the traced steps; topk is assumed to leave a fifth of it, at worst half",
        memory_bytes=0,
    )
