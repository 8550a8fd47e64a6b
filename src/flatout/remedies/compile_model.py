"""Compile the model."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import NUMERICS, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    if case.view.process.compiled is not False:
        return None
    compute_s = case.cause.share * case.model.now.busy_s
    return Proposal(
        title="compile the model with torch.compile",
        change=Change(busy_removed_s=0.15 * compute_s, busy_cpu_removed_s=0.15 * compute_s),
        least=Change(),
        most=Change(busy_removed_s=0.5 * compute_s, busy_cpu_removed_s=0.5 * compute_s),
        how="model = torch.compile(model)",
        settings={"compile": "default"},
        basis="share of computation only; compiling costs minutes at the start, and again at new shapes",
        memory_bytes=0,
    )


ENTRY = RemedySpec("compile_model", ("compute_bound", "small_batch"), NUMERICS, "medium", _propose)
