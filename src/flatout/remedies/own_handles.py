"""Give each worker what it waits for the others to leave."""

from __future__ import annotations

from flatout.predict.fetch_changes import group_share
from flatout.predict.pipeline import Change
from flatout.predict.rate_model import LOCK_GROUPS
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers < 2:
        return None
    lock = group_share(loading.blocked_groups, LOCK_GROUPS)
    return Proposal(
        title="open files and connections in each worker, without a shared lock",
        change=Change(lock_removed=True, fetch_blocked_factor=1.0 - lock),
        least=Change(),
        how="open in worker_init_fn, or at the first __getitem__ of a worker: self.file = None in __init__",
        basis="measured waiting for a lock; what the lock protects may be slow by itself",
        memory_bytes=None,
    )


ENTRY = RemedySpec("own_handles", ("serialized_workers",), IDENTICAL, "medium", _propose)
