"""Validate half as often."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import OPTIMISATION, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    saved_s = 0.5 * case.view.seconds("validation") / case.model.batches
    return Proposal(
        title="validate half as often",
        change=Change(gap_removed_s=saved_s),
        how="if epoch % 2 == 0: validate(...)  # Lightning: check_val_every_n_epoch=2",
        settings={"validation_factor": 2.0},
        basis="measured time in validation; less often is less work, not higher speed",
        memory_bytes=0,
    )


# Early stopping and the choice of the best checkpoint see fewer points.
ENTRY = RemedySpec("validate_less", ("validation",), OPTIMISATION, "medium", _propose)
