"""Causes inside the step: operators that work on far more than is used."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import hottest
from flatout.measure.operators import Operators
from flatout.measure.thresholds import DOMINANT_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import less_in_forward, shorter_step
from flatout.results import Cause, Evidence
from flatout.units import percent


def takes(context: Context, found: Cause) -> str:
    return f"{found.title[:1].upper()}{found.title[1:]}: that takes {percent(found.share)} of the time."


@cause(
    "training",
    # What a sort makes is new memory in each step, as large as the whole.
    hides=("page_faults",),
    hides_from=DOMINANT_SHARE,
    sentence=takes,
)
def full_sort(context: Context) -> Found | Lacks | None:
    """The model sorts whole tensors and uses the first or last places of them."""
    operators = traced(context)
    if isinstance(operators, Lacks):
        return operators
    sorts = operators.sorts
    share = context.model.recovered(shorter_step(operators.of_sorts_s))
    if sorts is None or share < NOISE_SHARE:
        return None
    size = sorts.shape[sorts.dimension]
    shape = "x".join(map(str, sorts.shape))
    return Found(
        title=f"all of {size:,} values are sorted to use {sorts.used:,} of them",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"a tensor of {shape} is sorted along dimension {sorts.dimension}, and cut to {sorts.used:,} places "
                f"right after it: {percent(sorts.seconds / operators.kernels_s)} of the time in kernels",
                {"size": size, "used": sorts.used, "seconds": sorts.seconds, "dimension": sorts.dimension},
            ),
            *hottest(context.run.lines("forward"), 2),
        ),
    )


@cause(
    "training",
    # They are the largest tensors of many models, and new memory in each step.
    hides=("page_faults", "dense_gradients"),
    hides_from=DOMINANT_SHARE,
    sentence=takes,
)
def needless_logits(context: Context) -> Found | Lacks | None:
    """The output layer computes values for positions that the loss ignores, or for classes that never occur."""
    operators = traced(context)
    if isinstance(operators, Lacks):
        return operators
    logits = operators.logits
    if logits is None:
        return None
    by_position, by_class = (
        context.model.recovered(shorter_step(operators.in_kernels_s(seconds)))
        for seconds in (logits.ignored_s, logits.unused_s)
    )
    if max(by_position, by_class) < NOISE_SHARE:
        return None
    values: dict[str, float | int | str] = {
        "classes": logits.classes,
        "used": logits.used,
        "positions": logits.positions,
        "ignored": logits.ignored,
    }
    evidence = []
    if by_position >= NOISE_SHARE:
        text = (
            f"the loss ignores {percent(logits.ignored)} of {logits.positions:,} positions in a step after the window; "
            f"the output layer and the loss at all of them take {percent(logits.by_position_s / operators.kernels_s)} "
            "of the time in kernels"
        )
        evidence.append(Evidence(text, values))
    if by_class >= NOISE_SHARE:
        text = (
            f"of {logits.classes:,} classes none above the {logits.used:,}th occurs in that step; work on tensors of "
            f"all classes is {percent(logits.by_class_s / operators.kernels_s)} of the time in kernels"
        )
        evidence.append(Evidence(text, values))
    return Found(
        title=f"the output layer computes {logits.classes:,} values at positions that the loss ignores"
        if by_position > by_class
        else f"the output layer has {logits.classes:,} classes, of which {logits.used:,} occur",
        share=max(by_position, by_class),
        confidence=0.8 if by_position > by_class else 0.7,
        evidence=(*evidence, *hottest(context.run.lines("loss"), 1), *hottest(context.run.lines("forward"), 1)),
    )


@cause(
    "training",
    # Such matrices are large, and often made anew in each step.
    hides=("page_faults", "too_many_threads", "too_few_threads"),
    hides_from=DOMINANT_SHARE,
    sentence=takes,
)
def sparse_as_dense(context: Context) -> Found | Lacks | None:
    """Products with matrices that are almost all zeros multiply the zeros, too."""
    operators = traced(context)
    if isinstance(operators, Lacks):
        return operators
    zeros = operators.zeros
    if zeros is None:
        return None
    share = context.model.recovered(less_in_forward(context, operators.in_kernels_s(zeros.saved_s)))
    if share < NOISE_SHARE:
        return None
    shape, nonzero = "x".join(f"{size:,}" for size in zeros.shape), f"{100 * zeros.nonzero:.2g}%"
    making = ""
    if zeros.making_s > NOISE_SHARE * operators.kernels_s:
        making = f", making them {percent(zeros.making_s / operators.kernels_s)}"
    return Found(
        title=f"matrices of {shape} values, of which {nonzero} are not zero, are multiplied as a whole",
        share=share,
        # What a sparse product takes beside a dense one was measured on a CPU; tensor cores are made for dense ones.
        confidence=0.5 if operators.on_device else 0.8,
        evidence=(
            Evidence(
                f"in a step after the window {nonzero} of the values of such matrices were not zero; products with "
                f"them take {percent(zeros.product_s / operators.kernels_s)} of the time in kernels{making}",
                {"nonzero": zeros.nonzero, "product_s": zeros.product_s, "making_s": zeros.making_s},
            ),
            *hottest(context.run.lines("forward"), 2),
        ),
    )


def traced(context: Context) -> Operators | Lacks:
    """The operators of the traced steps."""
    if context.fitted is None:
        return Lacks(NO_STEP)
    operators = context.run.operators
    return Lacks(operators) if isinstance(operators, str) else operators


def _moves_whole_tables(context: Context, found: Cause) -> str:
    return (
        f"Gradients of whole embedding tables take {percent(found.share)} of the time; batches take few of their rows."
    )


@cause(
    "training",
    # Whole tables are new memory in each step, and cost the same whatever the batch.
    hides=("page_faults", "small_batch", "too_many_threads", "too_few_threads"),
    hides_from=DOMINANT_SHARE,
    sentence=_moves_whole_tables,
)
def dense_gradients(context: Context) -> Found | Lacks | None:
    """Each step makes and applies gradients of whole embedding tables, and takes few of their rows."""
    operators = traced(context)
    if isinstance(operators, Lacks):
        return operators
    dense = operators.dense
    share = context.model.recovered(shorter_step(operators.of_tables_s))
    if dense is None or share < NOISE_SHARE:
        return None
    tables = " and ".join(f"{rows:,} x {columns:,}" for rows, columns in dense.tables[:2])
    return Found(
        title="gradients of embedding tables are as large as the tables",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"tables of {tables} values, of which a step takes {dense.taken:,.0f} rows; work on all the others is "
                f"{percent(dense.seconds / operators.kernels_s)} of the time in kernels",
                {"rows": sum(rows for rows, _ in dense.tables), "taken": dense.taken, "seconds": dense.seconds},
            ),
            *hottest(context.run.lines("optimizer"), 1),
            *hottest(context.run.lines("backward"), 1),
        ),
    )
