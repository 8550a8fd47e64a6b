"""Copy to the GPU from pinned memory, without waiting."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    each_s = case.view.seconds("h2d") / case.model.batches
    loading = case.view.loading
    if loading is not None and loading.pin_memory:
        title, how = "copy without waiting", "batch.to(device, non_blocking=True)"
    else:
        title = "pin the loader's memory and copy without waiting"
        how = "DataLoader(..., pin_memory=True); batch.to(device, non_blocking=True)"
    return Proposal(
        title=title,
        change=Change(busy_removed_s=0.7 * each_s),
        least=Change(busy_removed_s=0.2 * each_s),
        most=Change(busy_removed_s=each_s),
        how=how,
        settings={"pin_memory": True, "non_blocking": True},
        basis="measured time of copies; those that the GPU's work hides cost nothing before, either",
        memory_bytes=2 * loading.batch_bytes if loading is not None and loading.batch_bytes else None,
    )


ENTRY = RemedySpec("pin_memory", ("h2d",), IDENTICAL, "low", _propose)
