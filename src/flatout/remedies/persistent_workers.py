"""Keep workers alive between epochs."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers == 0 or loading.persistent_workers:
        return None
    lost_s = case.cause.share * case.view.ledger.window_s / case.model.batches
    in_gap_s = min(lost_s, case.model.now.gap_s)
    # The first batch of an epoch is still fetched while the training waits for it.
    first_s = float(loading.fetch_s.mean()) if len(loading.fetch_s) else 0.0
    left_s = min(first_s * loading.epochs_started / case.model.batches, in_gap_s / 2)
    # A loader that is built anew has no workers to keep: the line that builds it has to move, and only a person can.
    once = loading.rebuilt
    return Proposal(
        title="build the DataLoader once, with persistent_workers=True" if once else "set persistent_workers=True",
        change=Change(gap_removed_s=in_gap_s - left_s),
        least=Change(gap_removed_s=0.5 * in_gap_s),
        most=Change(gap_removed_s=in_gap_s),
        how="loader = DataLoader(..., persistent_workers=True) before the loop over epochs, not in it"
        if once
        else "DataLoader(..., persistent_workers=True)",
        settings=None if once else {"persistent_workers": True},
        basis="measured time at epoch boundaries; one fetch of it is left in each epoch",
        memory_bytes=0,
    )


ENTRY = RemedySpec("persistent_workers", ("worker_restart",), IDENTICAL, "low", _propose)
