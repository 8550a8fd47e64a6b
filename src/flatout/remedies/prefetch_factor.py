"""Deepen the queue so that a slow batch does not stop the training."""

from __future__ import annotations

from flatout.predict.host_memory import added_bytes
from flatout.predict.pipeline import Change
from flatout.predict.workers import enough_prefetch
from flatout.remedies.proposal import IDENTICAL, Case, Entry, Proposal


def _propose(case: Case) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers == 0:
        return None
    depth = enough_prefetch(case.view, case.model, loading.num_workers)
    # PyTorch's own default is 2.
    now = loading.prefetch_factor or 2
    if depth is None or depth <= now:
        return None
    return Proposal(
        title=f"raise prefetch_factor from {now} to {depth}",
        # Half of what uneven batches lose: how they follow each other decides, and a model of means does not see it.
        change=Change(smoothing=0.5),
        least=Change(),
        most=Change(smoothing=1.0),
        how=f"DataLoader(..., prefetch_factor={depth})",
        recipe=f"images.prefetch_batches={depth * max(loading.num_workers, 1)}",
        basis="the slowest hundredth of the fetches; a deeper queue cannot raise the mean supply",
        memory_bytes=added_bytes(case.view, loading.num_workers, depth),
    )


ENTRY = Entry(
    "prefetch_factor",
    ("too_few_workers", "storage_latency", "shallow_prefetch", "sample_skew"),
    IDENTICAL,
    "low",
    _propose,
)
