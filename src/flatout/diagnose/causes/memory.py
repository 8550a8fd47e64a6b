"""The cause of memory that is taken anew from the kernel in every step."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.predict.context import Context
from flatout.predict.page_faults import FaultParts, fault_parts
from flatout.results import Cause, Evidence
from flatout.units import percent


def _faults(context: Context, found: Cause) -> str:
    return (
        f"Memory that every step takes anew from the kernel, and that the kernel fills with zeros, takes "
        f"{percent(found.share)} of the time."
    )


@cause("training", sentence=_faults)
def page_faults(context: Context) -> Found | Lacks | None:
    """Every step takes its memory anew from the kernel, page by page, and gives it back."""
    run = context.run
    if context.fitted is None:
        return Lacks(NO_STEP)
    parts, faults = fault_parts(context), run.usage.main_faults
    if run.uses_gpu is not False:
        return None
    if parts is None or faults is None:
        return Lacks("page faults of the training process were not counted")
    share = context.model.recovered(FaultParts(parts.step, 0.0).change(context))
    if share < MATERIAL_SHARE:
        return None
    each = faults.per_s * run.ledger.window_s / context.model.batches
    return Found(
        title="every step takes its memory anew from the kernel",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"{each:,.0f} page faults a step of the training process, which spends "
                f"{percent(faults.system_cores / faults.cores)} of its CPU time in the kernel",
                {"faults": each, "system": faults.system_cores / faults.cores},
            ),
            Evidence(
                "tensors that are freed go back to the kernel: glibc keeps none of 32 MiB or more, and few others"
            ),
        ),
    )
