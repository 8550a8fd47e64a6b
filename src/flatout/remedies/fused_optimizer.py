"""Update all weights in one kernel."""

from __future__ import annotations

from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import NUMERICS, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    optimizer_s = case.view.seconds("optimizer") / case.model.batches
    if case.view.ledger.share("optimizer") < MATERIAL_SHARE:
        return None
    return Proposal(
        title="use the optimizer's fused form",
        change=Change(busy_removed_s=0.4 * optimizer_s, busy_cpu_removed_s=0.4 * optimizer_s),
        least=Change(),
        most=Change(busy_removed_s=0.8 * optimizer_s, busy_cpu_removed_s=0.8 * optimizer_s),
        how="torch.optim.AdamW(..., fused=True)  # Adam, AdamW, SGD, Adagrad",
        settings={"optimizer_form": "fused"},
        basis="measured time of the optimizer; how much of it is the launching of kernels is not known",
        memory_bytes=0,
    )


ENTRY = RemedySpec("fused_optimizer", ("small_batch", "compute_bound"), NUMERICS, "low", _propose)
