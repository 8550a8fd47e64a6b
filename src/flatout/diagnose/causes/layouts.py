"""The cause of copies between memory layouts."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import hottest, place
from flatout.measure.layouts import converting_lines
from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.predict.context import Context
from flatout.predict.step_changes import shorter_step
from flatout.results import Cause, Evidence
from flatout.units import percent


def _converts(context: Context, found: Cause) -> str:
    lines = converting_lines(context.run)
    at = f" ({place(lines[0])})" if lines else ""
    return f"Copies between memory layouts take {percent(found.share)} of the time{at}."


@cause("training", sentence=_converts)
def layout_conversions(context: Context) -> Found | Lacks | None:
    """Tensors are copied between memory layouts in every step, such as from channels last to contiguous and back."""
    run, operators = context.run, context.run.operators
    if context.fitted is None:
        return Lacks(NO_STEP)
    if isinstance(operators, str):
        return Lacks(operators)
    if operators.conversions is None:
        return Lacks("the kernel trace of this version of torch does not hold the strides of tensors")
    if operators.kernels_s <= 0:
        return None
    share = context.fitted.recovered(shorter_step(operators.in_kernels_s(operators.conversions_s)))
    # Attention over several heads takes up to 4% (a small GPT without a fused kernel, on a CPU).
    if share < MATERIAL_SHARE:
        return None
    return Found(
        title="tensors are copied between memory layouts in every step",
        share=share,
        confidence=0.7,
        evidence=(
            Evidence(
                f"{operators.conversions:,.0f} copies a step into another order of dimensions take "
                f"{percent(operators.conversions_s / operators.kernels_s)} of the time in kernels",
                {"conversions": operators.conversions, "conversions_s": operators.conversions_s},
            ),
            *hottest(converting_lines(run), 3),
            Evidence("the share is an upper bound: a conversion at the input or the output may have to stay"),
        ),
    )
