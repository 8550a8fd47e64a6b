"""Take less of the cores than the quota gives, or get more of it."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    lost_s = case.cause.share * case.model.now.total_s
    return Proposal(
        title="ask for more cores or better cooling, or start fewer threads",
        change=Change(busy_removed_s=0.5 * lost_s),
        least=Change(),
        most=Change(busy_removed_s=lost_s),
        how="a larger CPU limit of the container; torch.set_num_threads(cores of the quota); fewer workers",
        basis="measured time that was withheld; what the training would have done in it is not known",
        memory_bytes=0,
    )


ENTRY = RemedySpec("more_quota", ("throttled",), IDENTICAL, "low", _propose)
