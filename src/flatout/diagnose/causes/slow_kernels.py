"""Causes inside the step: operators that a CPU computes one element after the other."""

from __future__ import annotations

from typing import Literal

from flatout.diagnose.cause import Found, Lacks, cause
from flatout.diagnose.causes.needless_operators import takes, traced
from flatout.diagnose.evidence import hottest
from flatout.measure.slow_kernels import SlowKernel
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import less_in_forward
from flatout.results import Evidence
from flatout.units import percent


@cause("training", sentence=takes)
def dropout_masks(context: Context) -> Found | Lacks | None:
    """A CPU draws the masks of dropout, one random number for each element."""
    return _found(
        context,
        "masks",
        title="random masks of {:,.0f} elements are drawn in each step, as dropout does",
        evidence="bernoulli_ takes {} of the time in kernels; masks from fewer random bits take {} of its time here",
        account="forward",
    )


@cause("training", sentence=takes)
def bce_of_probabilities(context: Context) -> Found | Lacks | None:
    """A CPU computes binary cross-entropy of probabilities, one logarithm after the other."""
    return _found(
        context,
        "bce",
        title="binary cross-entropy of {:,.0f} probabilities a step is computed one value at a time",
        evidence="binary_cross_entropy takes {} of the time in kernels; the same formula with logarithms of whole "
        "vectors takes {} of its time here",
        account="loss",
    )


def _found(
    context: Context, name: Literal["masks", "bce"], title: str, evidence: str, account: str
) -> Found | Lacks | None:
    operators = traced(context)
    if isinstance(operators, Lacks):
        return operators
    kernel: SlowKernel | None = getattr(operators.slow, name)
    if kernel is None:
        return None
    share = context.model.recovered(less_in_forward(context, operators.in_kernels_s(kernel.saved_s)))
    if share < NOISE_SHARE:
        return None
    return Found(
        title=title.format(kernel.elements),
        share=share,
        confidence=0.9,
        evidence=(
            Evidence(
                evidence.format(percent(kernel.seconds / operators.kernels_s), percent(kernel.quick)),
                {"elements": kernel.elements, "seconds": kernel.seconds, "quick": kernel.quick},
            ),
            *hottest(context.run.lines(account), 1),
        ),
    )
