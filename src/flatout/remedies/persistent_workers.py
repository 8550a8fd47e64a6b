"""Keep workers alive between epochs."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Case, Entry, Proposal


def _propose(case: Case) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers == 0 or loading.persistent_workers:
        return None
    lost_s = case.cause.share * case.view.ledger.window_s / case.model.batches
    in_gap_s = min(lost_s, case.model.now.gap_s)
    removed = Change(gap_removed_s=in_gap_s)
    return Proposal(
        title="set persistent_workers=True",
        # The first batches of an epoch are still waited for: a tenth of the boundary is left.
        change=Change(gap_removed_s=0.9 * in_gap_s),
        least=Change(gap_removed_s=0.5 * in_gap_s),
        most=removed,
        how="DataLoader(..., persistent_workers=True)",
        basis="measured time at epoch boundaries",
        memory_bytes=0,
    )


ENTRY = Entry("persistent_workers", ("worker_restart",), IDENTICAL, "low", _propose)
