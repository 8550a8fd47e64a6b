"""Deliver batches as they are made, not in their order."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.predict.whatif import Wanted, WhatIf
from flatout.remedies.proposal import DATA, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers < 2 or not loading.in_order:
        return None
    try:
        gain = WhatIf(case.view, case.model).gain(Wanted(in_order=False))
    except ValueError:
        return None
    return Proposal(
        title="let fast batches pass slow ones",
        change=Change(supply_factor=gain.predicted),
        gain=gain,
        how="DataLoader(..., in_order=False)  # torch 2.6 or newer; or a deeper prefetch_factor",
        settings={"in_order": False},
        basis="the recorded batches, simulated in order and as they come; the order of the batches changes",
        memory_bytes=0,
    )


ENTRY = RemedySpec("in_order", ("sample_skew",), DATA, "low", _propose)
