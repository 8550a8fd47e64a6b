"""Begin epochs with less work."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    saved_s = case.cause.share * case.view.ledger.window_s / case.model.batches
    return Proposal(
        title="draw the order with one array, build lists once",
        change=Change(gap_removed_s=0.8 * saved_s),
        least=Change(gap_removed_s=0.3 * saved_s),
        most=Change(gap_removed_s=saved_s),
        how="torch.randperm(n) instead of a Python list in the sampler; build file lists in Dataset.__init__",
        basis="measured time at the beginning of epochs",
        memory_bytes=0,
    )


ENTRY = RemedySpec("cheaper_epoch_start", ("epoch_start",), IDENTICAL, "low", _propose)
