"""Fork workers instead of starting interpreters, where they are started again and again."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    # A process that uses a GPU has threads and a context that do not survive a fork well.
    if loading is None or loading.start_method not in ("spawn", "forkserver") or case.view.uses_gpu is not False:
        return None
    if loading.num_workers == 0 or loading.persistent_workers:
        return None
    lost_s = case.cause.share * case.view.ledger.window_s / case.model.batches
    in_gap_s = min(lost_s, case.model.now.gap_s)
    return Proposal(
        title=f"start workers by fork instead of {loading.start_method}",
        change=Change(gap_removed_s=0.8 * in_gap_s),
        least=Change(gap_removed_s=0.4 * in_gap_s),
        most=Change(gap_removed_s=in_gap_s),
        how="DataLoader(..., multiprocessing_context='fork')",
        settings={"start_method": "fork"},
        basis="measured time of starting workers; a fork costs a fraction of it",
        memory_bytes=0,
    )


ENTRY = RemedySpec("start_method", ("worker_restart",), IDENTICAL, "medium", _propose)
