"""Do the training process's own work in the workers."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers == 0:
        return None
    moved_s = case.view.seconds("host_other") / case.model.batches
    line = case.view.lines("host_other", 1)
    where = f" ({line[0].file}:{line[0].line})" if line else ""
    return Proposal(
        title=f"move work of the training process into the workers{where}",
        change=Change(busy_removed_s=moved_s, busy_cpu_removed_s=moved_s, fetch_cpu_added_s=moved_s),
        least=Change(),
        how="do it in Dataset.__getitem__ or collate_fn where it depends only on the data",
        basis="measured time of other code in the training process, added to the fetches",
        memory_bytes=0,
    )


ENTRY = RemedySpec("work_to_workers", ("main_process_work",), IDENTICAL, "medium", _propose)
