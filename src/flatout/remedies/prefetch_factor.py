"""Deepen the queue so that a slow batch does not stop the training."""

from __future__ import annotations

from flatout.predict.host_memory import added_bytes
from flatout.predict.pipeline import Change
from flatout.predict.whatif import Wanted, WhatIf
from flatout.predict.workers import enough_prefetch
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers == 0:
        return None
    depth = enough_prefetch(case.view, case.model, loading.num_workers)
    now = loading.prefetch_factor or DEFAULT_PREFETCH_FACTOR
    if depth is None or depth <= now:
        return None
    try:
        gain = WhatIf(case.view, case.model).gain(Wanted(prefetch_factor=depth))
    except ValueError:
        return None
    return Proposal(
        title=f"raise prefetch_factor from {now} to {depth}",
        change=Change(supply_factor=gain.predicted),
        gain=gain,
        how=f"DataLoader(..., prefetch_factor={depth})",
        settings={"prefetch_factor": depth},
        recipe=f"images.prefetch_batches={depth * max(loading.num_workers, 1)}",
        basis="the recorded batches, simulated with both depths; a deeper queue cannot raise the mean supply",
        memory_bytes=added_bytes(case.view, loading.num_workers, depth),
    )


ENTRY = RemedySpec(
    "prefetch_factor",
    ("too_few_workers", "storage_latency", "shallow_prefetch", "sample_skew"),
    IDENTICAL,
    "low",
    _propose,
)
