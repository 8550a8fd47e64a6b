"""Lower num_workers to what the cores can run."""

from __future__ import annotations

from flatout.predict.host_memory import added_bytes
from flatout.predict.pipeline import EVEN, Change
from flatout.predict.workers import enough_workers
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None:
        return None
    workers = enough_workers(case.view, case.model)
    if workers >= loading.num_workers:
        return None
    return Proposal(
        title=f"lower num_workers from {loading.num_workers} to {workers}",
        change=Change(num_workers=workers),
        most=Change(num_workers=workers, supply_factor=EVEN),
        how=f"DataLoader(..., num_workers={workers})",
        settings={"num_workers": workers},
        recipe=f"images.workers={workers}",
        basis="the cores are full: fewer workers take turns less often and leave memory free",
        memory_bytes=added_bytes(case.view, workers, None),
    )


ENTRY = RemedySpec("fewer_workers", ("too_many_workers",), IDENTICAL, "low", _propose)
