"""Workers and the depth of their queue together, where neither alone gives as much."""

from __future__ import annotations

from flatout.predict.host_memory import added_bytes
from flatout.predict.pipeline import Change
from flatout.predict.whatif import Wanted, WhatIf
from flatout.predict.workers import most_workers
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec

_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_DEPTHS = (2, 4, 8)
# Settings that come this close to the best cost memory for nothing measurable.
_NEARLY = 0.98


def best_queue(whatif: WhatIf, most: int, depth_now: int) -> tuple[int, int]:
    """(num_workers, prefetch_factor): fewest workers, then shallowest queue, that nearly give the best rate."""
    rates = {
        (workers, depth): whatif.rate(Wanted(num_workers=workers, prefetch_factor=depth))
        for workers in _WORKERS
        if workers <= most
        for depth in sorted({depth_now, *_DEPTHS})
        if depth >= depth_now
    }
    best = max(rates.values())
    return min(pair for pair, rate in rates.items() if rate >= _NEARLY * best)


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    try:
        whatif = WhatIf(case.view, case.model)
    except ValueError:
        return None
    assert loading is not None, "without one nothing is simulated"
    depth_now = loading.prefetch_factor or DEFAULT_PREFETCH_FACTOR
    workers, depth = best_queue(whatif, most_workers(case.view), depth_now)
    if workers == loading.num_workers or depth == depth_now:
        return None  # one of the two is enough, and has a remedy of its own
    gain = whatif.gain(Wanted(num_workers=workers, prefetch_factor=depth))
    return Proposal(
        title=f"set num_workers={workers} and prefetch_factor={depth}",
        change=Change(),
        gain=gain,
        how=f"DataLoader(..., num_workers={workers}, prefetch_factor={depth}, persistent_workers=True)",
        settings={"num_workers": workers, "prefetch_factor": depth, "persistent_workers": True},
        basis="the recorded batches, simulated as the queue is and as it would be",
        memory_bytes=added_bytes(case.view, workers, depth),
    )


ENTRY = RemedySpec(
    "queue_settings",
    ("too_few_workers", "storage_latency", "sample_skew", "shallow_prefetch", "small_files"),
    IDENTICAL,
    "low",
    _propose,
)
