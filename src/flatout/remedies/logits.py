"""The output layer's values of all classes, where they are needed only."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.step_changes import less_computing
from flatout.remedies.proposal import NUMERICS, OPTIMISATION, Proposal, remedy
from flatout.results import Cause
from flatout.units import percent

_LEAST, _USUAL = 0.5, 0.9  # of the measured time: choosing positions copies them


@remedy(("needless_logits",), NUMERICS, risk="medium")
def logits_where_needed(context: Context, cause: Cause) -> Proposal | None:
    """Compute the values of all classes at positions with a target only."""
    operators = context.run.operators
    if isinstance(operators, str) or operators.logits is None or not operators.logits.ignored:
        return None
    saved_s = operators.in_kernels_s(operators.logits.ignored_s)
    return Proposal(
        title=f"apply the output layer only where there is a target: not at {percent(operators.logits.ignored)} of the "
        "positions",
        change=less_computing(context, _USUAL * saved_s),
        least=less_computing(context, _LEAST * saved_s),
        most=less_computing(context, saved_s),
        how="kept = labels != -100; logits = head(hidden[kept]); loss = cross_entropy(logits, labels[kept]). "
        "sparse_prediction=True of ModernBERT; in transformers, a forward() of your own around model.base_model",
        basis="measured time of the output layer, its loss and their gradients in the traced steps, in proportion to "
        "the positions; choosing them is assumed to take a tenth of it, at worst half",
        memory_bytes=0,
    )


# Fewer classes: what is learned differs, though none of those that are left out ever occurs.
@remedy(("needless_logits",), OPTIMISATION, risk="medium")
def classes_that_occur(context: Context, cause: Cause) -> Proposal | None:
    """Give the output layer, and the embedding table, as many classes as there are."""
    operators = context.run.operators
    if isinstance(operators, str) or operators.logits is None or not operators.logits.unused:
        return None
    logits, saved_s = operators.logits, operators.in_kernels_s(operators.logits.unused_s)
    return Proposal(
        title=f"make the output layer as large as the vocabulary: {logits.classes:,} classes, of which {logits.used:,} "
        "occur",
        change=less_computing(context, _USUAL * saved_s),
        least=less_computing(context, _LEAST * saved_s),
        most=less_computing(context, saved_s),
        how="Config(vocab_size=len(tokenizer), ...) of transformers: its default is that of the published model",
        basis="measured time of operators on tensors of all classes in the traced steps, in proportion to the classes; "
        "the highest class was looked for in one step's batch",
        memory_bytes=0,
    )
