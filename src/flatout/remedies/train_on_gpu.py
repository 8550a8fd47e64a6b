"""Train on the GPU that is there."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import NUMERICS, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    compute_s = case.cause.share * case.model.now.total_s
    return Proposal(
        title="move the model and the batches to the GPU",
        # The least that a GPU of a server gives over its CPUs for dense models; small ones gain less.
        change=Change(busy_removed_s=0.8 * compute_s, busy_cpu_removed_s=0.8 * compute_s),
        least=Change(busy_removed_s=0.3 * compute_s),
        most=Change(busy_removed_s=0.98 * compute_s, busy_cpu_removed_s=0.98 * compute_s),
        how="model.to('cuda'); batch.to('cuda', non_blocking=True); a torch built with CUDA",
        basis="share of computation only: the GPU's speed on this model was not measured",
        memory_bytes=0,
    )


ENTRY = RemedySpec("train_on_gpu", ("cpu_training",), NUMERICS, "medium", _propose)
