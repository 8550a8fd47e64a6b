"""Share the fixed cost of a step among more samples."""

from __future__ import annotations

from flatout.predict.host_memory import added_bytes
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import OPTIMISATION, Case, Entry, Proposal


def _propose(case: Case) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.batch_size is None:
        return None
    size = loading.batch_size
    # Demand b / (a b + c): twice the batch halves the fixed cost c of each sample.
    saved_s = 0.5 * case.cause.share * case.model.now.total_s
    depth_bytes = None
    if loading.num_workers == 0:
        depth_bytes = loading.batch_bytes
    elif loading.batch_bytes is not None:
        # Each batch in flight doubles: as much as twice as deep a queue of the old ones.
        depth_bytes = added_bytes(case.view, loading.num_workers, 2 * (loading.prefetch_factor or 2))
    return Proposal(
        title=f"raise the batch size from {size} to {2 * size}",
        change=Change(busy_removed_s=saved_s, busy_cpu_removed_s=saved_s),
        least=Change(),
        how=f"DataLoader(..., batch_size={2 * size}); adapt the learning rate; device memory grows with the batch",
        settings={"batch_size": 2 * size, "lr_factor": 2.0},
        recipe=f"training.batch_size={2 * size}",
        basis="measured cost that each step has once; device memory was not predicted",
        memory_bytes=depth_bytes,
    )


ENTRY = Entry("bigger_batch", ("small_batch",), OPTIMISATION, "medium", _propose)
