"""Causes inside the step: layers that another form computes in less time, as was timed after the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import place
from flatout.measure.layer_forms import BothForms
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import as_timed, fit_in_step
from flatout.results import Cause, Evidence
from flatout.units import duration, percent

_Layers = TypeVar("_Layers", bound=BothForms)


def _sentence(form: str) -> Callable[[Context, Cause], str]:
    def sentence(context: Context, found: Cause) -> str:
        title = f"{found.title[:1].upper()}{found.title[1:]}"
        return f"{title}: {form} would save {percent(found.share)} of the time."

    return sentence


@cause("training", sentence=_sentence("one layer with the weights of all"))
def unmerged_layers(context: Context) -> Found | Lacks | None:
    """Layers that take the same input, such as heads of attention in a list, are computed one after the other."""
    return _found(
        context,
        context.run.unmerged_layers,
        title=lambda one: f"{one.layers} {one.kind} of the same input are computed one after the other",
        seen=lambda one: f"{one.layers} {one.kind} take one input",
        other=lambda one: "one layer in their place",
    )


@cause("training", sentence=_sentence("a convolution in one dimension"))
def spanning_kernels(context: Context) -> Found | Lacks | None:
    """Convolutions of one channel have a kernel as wide as their input."""
    return _found(
        context,
        context.run.spanning_kernels,
        title=lambda one: "convolutions of one channel are as wide as their input",
        seen=lambda one: f"a kernel of {_shape(one.kernel)} spans a dimension of an input",
        other=lambda one: "a convolution in the other one",
    )


@cause("training", sentence=_sentence("torch's own functions"))
def unfused_functions(context: Context) -> Found | Lacks | None:
    """Functions of the program's compute by several operators what torch has as one."""
    return _found(
        context,
        context.run.unfused_functions,
        title=lambda one: f"functions compute by several operators what {_names(context)} in one",
        seen=lambda one: f"{one.lines[0].function if one.lines else 'a function'} gets an input",
        other=lambda one: one.code,
    )


@cause("training", sentence=_sentence("products by rows (CSR)"))
def coo_products(context: Context) -> Found | Lacks | None:
    """Sparse matrices are multiplied in coordinates (COO)."""
    return _found(
        context,
        context.run.coordinate_products,
        title=lambda one: "a sparse matrix is multiplied in coordinates (COO)",
        seen=lambda one: (
            f"{one.products:,} {'product' if one.products == 1 else 'products'} of a matrix of {_shape(one.matrix)}, "
            f"{one.values:,} values, with one"
        ),
        other=lambda one: "products by rows (CSR)" if one.kept else "products by rows (CSR), which are made each time,",
    )


@cause("training", sentence=_sentence("channels last"))
def channels_first(context: Context) -> Found | Lacks | None:
    """Pixels are laid out channels first, and the model's convolutions take less time with channels last."""
    return _found(
        context,
        context.run.model_layouts,
        title=lambda one: "pixels are laid out channels first",
        seen=lambda one: f"{one.name} gets an input",
        other=lambda one: f"the same in {one.layout}",
    )


# The weights of attention are memory that each step takes anew.
@cause("training", hides=("page_faults",), sentence=_sentence("torch's own attention"))
def unfused_attention(context: Context) -> Found | Lacks | None:
    """Attention is computed by two products with a softmax between them, not by torch's operator."""
    return _found(
        context,
        context.run.unfused_attention,
        title=lambda one: "attention writes its weights, which torch's operator does without",
        seen=lambda one: f"weights of {one.shape[0]}x{one.shape[1]}x{one.keys} are made from queries",
        other=lambda one: "F.scaled_dot_product_attention",
    )


# What is made for the pairs is memory that each step takes anew.
@cause("training", hides=("page_faults",), sentence=_sentence("a product of matrices"))
def broadcast_pairs(context: Context) -> Found | Lacks | None:
    """Products, distances or cosines of all pairs of rows are made by broadcasting."""
    return _found(
        context,
        context.run.broadcast_pairs,
        title=lambda one: f"{one.kind} of all pairs are made by broadcasting",
        seen=lambda one: f"what is {_shape(one.left)} and {_shape(one.right)} is broadcast to an array",
        other=lambda one: "a product of matrices",
    )


# The copies are memory that each step takes anew.
@cause("training", hides=("page_faults",), sentence=_sentence("one product for each matrix"))
def gathered_weights(context: Context) -> Found | Lacks | None:
    """A matrix of weights is copied for each row, and multiplied with that row alone."""
    return _found(
        context,
        context.run.gathered_weights,
        title=lambda one: f"each row is multiplied by a copy of one of {one.matrices:,} matrices",
        seen=lambda one: f"copies of {one.matrices:,} matrices of {_shape(one.matrix)} are multiplied with rows",
        other=lambda one: "one product for each matrix, of sorted rows,",
    )


# Gradients as large as the weight are memory that each step takes anew.
@cause("training", hides=("page_faults",), sentence=_sentence("one product after the loop"))
def stepwise_products(context: Context) -> Found | Lacks | None:
    """A layer with a large weight multiplies one input after the other, as the output layer of a decoder does."""
    if context.run.repeated_weight is not None:
        return None  # nothing in the loop depends on what comes before: another cause
    return _found(
        context,
        context.run.stepwise_products,
        title=lambda one: f"a layer multiplies {one.products:,} inputs in turn, none of which needs another's result",
        seen=lambda one: f"{one.products:,} products with a weight of {_shape(one.weight)}, each",
        other=lambda one: "one product of all",
    )


def _names(context: Context) -> str:
    """Of torch's functions, those that save most first, with a verb."""
    *others, last = dict.fromkeys(f"F.{one.name}" for one in context.run.unfused_functions)
    return f"{', '.join(others)} and {last} give" if others else f"{last} gives"


def _found(
    context: Context,
    layers: Sequence[_Layers],
    title: Callable[[_Layers], str],
    seen: Callable[[_Layers], str],
    other: Callable[[_Layers], str],
) -> Found | Lacks | None:
    if context.fitted is None:
        return Lacks(NO_STEP)
    if not layers:
        looked = context.run.repeated_work
        return Lacks(looked) if isinstance(looked, str) else None
    first = layers[0]
    if first.seconds is None:
        return Lacks(f"both forms of the layers were not timed: {first.skipped}")
    if not fit_in_step(context, layers):
        return Lacks("measured after the window, the layers took longer than both passes of a step")
    usual, least, _ = as_timed(context, layers)
    if context.model.recovered(least) < NOISE_SHARE:
        return None
    timed = [
        Evidence(
            f"{_often(one.uses)}, {seen(one)} of {_shape(one.shape)}; measured after the window, both passes take "
            f"{duration(one.seconds)}, and those of {other(one)} {percent(one.part)} of that "
            f"({percent(one.low)} to {percent(one.high)})",
            {"uses": one.uses, "part": one.part, "seconds": one.seconds},
        )
        for one in layers
        if one.seconds is not None
    ]
    lines = [
        Evidence(f"in {place(line)}, {line.function}", {"file": line.file, "line": line.line})
        for line in first.lines[:2]
    ]
    share = context.model.recovered(usual)
    return Found(title=title(first), share=share, confidence=0.85, evidence=(*timed[:2], *lines))


def _often(uses: int) -> str:
    return "once a step" if uses == 1 else f"{uses:,} times a step"


def _shape(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))
