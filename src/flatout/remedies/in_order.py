"""Deliver batches as they are made, not in their order."""

from __future__ import annotations

from flatout.predict.pipeline import EVEN, Change
from flatout.predict.queueing import supply_factor
from flatout.remedies.proposal import DATA, Case, Entry, Proposal


def _propose(case: Case) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers < 2 or not loading.in_order:
        return None
    factor = supply_factor(case.view, case.model.now, in_order=False)
    if factor is None:
        return None
    return Proposal(
        title="let fast batches pass slow ones",
        change=Change(supply_factor=factor),
        least=Change(supply_factor=1.0 + (factor - 1.0) / 2),
        most=Change(supply_factor=EVEN),
        how="DataLoader(..., in_order=False)  # torch 2.6 or newer; or a deeper prefetch_factor",
        settings={"in_order": False},
        basis="the recorded batches, simulated in order and as they come; the order of the batches changes",
        memory_bytes=0,
    )


ENTRY = Entry("in_order", ("sample_skew",), DATA, "low", _propose)
