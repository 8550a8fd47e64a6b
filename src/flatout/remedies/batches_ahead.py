"""Make the next batch while the model computes, where no DataLoader does."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    view = case.view
    if view.loading is not None:
        return None
    input_s = view.seconds("batch_wait") / case.model.batches
    # One helper that works beside the step: the longer of both sets the pace.
    overlapped_s = min(input_s, max(case.model.now.total_s - case.model.now.gap_s - input_s, 0.0))
    line = view.lines("batch_wait", 1)
    where = f" ({line[0].file}:{line[0].line})" if line else ""
    return Proposal(
        title=f"make the next batch while the model computes{where}",
        change=Change(busy_removed_s=overlapped_s),
        least=Change(),
        how="an IterableDataset around it in a DataLoader with num_workers, or more of the library's own workers",
        basis="measured time of input in the training process, overlapped with the rest of the step",
        memory_bytes=None,
    )


ENTRY = RemedySpec("batches_ahead", ("own_input",), IDENTICAL, "medium", _propose)
