"""Compute in 16 bits where the GPU has the units for it."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import NUMERICS, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    # On CPUs it helps only with special instructions, whose presence is not recorded.
    if not case.view.uses_gpu:
        return None
    compute_s = case.cause.share * case.model.now.busy_s
    return Proposal(
        title="compute in mixed precision, if it does not yet",
        # Halved traffic for memory-bound kernels and at least twice the rate for matrix products, but not for all.
        change=Change(busy_removed_s=0.25 * compute_s),
        least=Change(),
        most=Change(busy_removed_s=0.6 * compute_s),
        how="with torch.autocast('cuda', dtype=torch.bfloat16): loss = ...",
        settings={"autocast": "bf16"},
        recipe="training.precision=bf16",
        basis="share of computation only; the kernels were not measured in 16 bits",
        memory_bytes=0,
    )


ENTRY = RemedySpec("mixed_precision", ("compute_bound",), NUMERICS, "medium", _propose)
