"""Raise num_workers to the smallest number that meets the demand."""

from __future__ import annotations

from flatout.predict.host_memory import added_bytes
from flatout.predict.pipeline import Change
from flatout.predict.workers import enough_workers
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None:
        return None
    workers = enough_workers(case.view, case.model)
    if workers <= loading.num_workers:
        return None
    restarts = "" if loading.persistent_workers else ", persistent_workers=True"
    change = Change(num_workers=workers)
    bound = min(case.model.now.changed(change).limits().items(), key=lambda limit: limit[1])[0]
    after = {
        "training": "the training step itself",
        "workers": "the time of a fetch",
        "cores": "the usable cores",
        "serial": "a lock",
    }
    upper = "; memory of a worker by RSS, an upper bound" if case.view.usage.worker_bytes_source == "RSS" else ""
    return Proposal(
        title=f"raise num_workers from {loading.num_workers} to {workers}",
        change=change,
        how=f"DataLoader(..., num_workers={workers}{restarts})",
        settings={"num_workers": workers, "persistent_workers": True},
        recipe=f"images.workers={workers}",
        basis=f"measured fetch and step times; the next limit is {after[bound]}{upper}",
        memory_bytes=added_bytes(case.view, workers, None),
    )


ENTRY = RemedySpec(
    "num_workers",
    ("no_workers", "too_few_workers", "storage_latency", "storage_bandwidth", "small_files"),
    IDENTICAL,
    "low",
    _propose,
)
