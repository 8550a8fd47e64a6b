"""Write checkpoints half as often, or in another thread."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    all_s = case.view.seconds("checkpoint") / case.model.batches
    return Proposal(
        title="write checkpoints half as often, or asynchronously",
        change=Change(gap_removed_s=0.5 * all_s),
        most=Change(gap_removed_s=all_s),
        how="save every second time; or torch.distributed.checkpoint.async_save(state, checkpoint_id=path)",
        settings={"checkpoint_beside": True},
        recipe="checkpoints.every_steps=0",
        basis="measured time in checkpoint writes; a crash loses up to twice as much training",
        memory_bytes=0,
    )


ENTRY = RemedySpec("checkpoint_less", ("checkpoint",), IDENTICAL, "medium", _propose)
