"""Deliver batches as they are made, not in their order."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import DATA, Case, Entry, Proposal


def _propose(case: Case) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers < 2 or not loading.in_order:
        return None
    return Proposal(
        title="let fast batches pass slow ones",
        change=Change(smoothing=0.8),
        least=Change(smoothing=0.3),
        most=Change(smoothing=1.0),
        how="DataLoader(..., in_order=False)  # torch 2.6 or newer; or a deeper prefetch_factor",
        basis="measured waiting for a batch while a later one was ready; the order of the batches changes",
        memory_bytes=0,
    )


ENTRY = Entry("in_order", ("sample_skew",), DATA, "low", _propose)
