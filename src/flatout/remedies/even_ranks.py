"""Let no rank wait for another."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    ranks = case.view.ranks
    if ranks is None:
        return None
    lost_s = case.cause.share * case.model.now.total_s
    return Proposal(
        title=f"make rank {ranks.straggler} as fast as the others",
        change=Change(busy_removed_s=0.9 * lost_s),
        least=Change(busy_removed_s=0.3 * lost_s),
        most=Change(busy_removed_s=lost_s),
        how=f"profile rank {ranks.straggler} alone: it {ranks.part} longer; the same data, workers and cores for all",
        basis="measured waiting of the other ranks for this one",
        memory_bytes=0,
    )


ENTRY = RemedySpec("even_ranks", ("rank_straggler",), IDENTICAL, "medium", _propose)
