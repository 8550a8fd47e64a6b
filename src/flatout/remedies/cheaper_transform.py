"""Move transforms from single samples on the CPU to whole batches on the GPU."""

from __future__ import annotations

from flatout.predict.fetch_changes import TRANSFORM_GROUPS, without_groups
from flatout.predict.pipeline import Change
from flatout.remedies import crop_first
from flatout.remedies.proposal import DATA, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    # Where it is known which transform comes too early, that is the remedy.
    if loading is None or crop_first.too_early(loading.transforms):
        return None
    if case.view.uses_gpu:
        title, how = "run transforms on the GPU, a batch at a time", "batch = augment(batch.to(device))"
    else:
        title, how = "make transforms cheaper: crop before resizing, work on uint8", "v2.Compose([crop, resize, ...])"
    return Proposal(
        title=title,
        change=without_groups(loading, TRANSFORM_GROUPS, 0.5),
        least=Change(),
        most=without_groups(loading, TRANSFORM_GROUPS),
        how=how,
        basis="measured share of transforms; assumes that half of it can be moved or saved",
        memory_bytes=0,
    )


ENTRY = RemedySpec("cheaper_transform", ("cpu_transform",), DATA, "medium", _propose)
