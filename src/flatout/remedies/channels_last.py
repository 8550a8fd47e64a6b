"""Lay pixels out channels last, as fast convolutions take them."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import NUMERICS, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    process = case.view.process
    if process.convolutions not in (2, 3) or process.channels_last is not False:
        return None
    layout = "channels_last" if process.convolutions == 2 else "channels_last_3d"
    compute_s = case.cause.share * case.model.now.busy_s
    return Proposal(
        title=f"lay pixels out {layout}",
        # On GPUs it pays with tensor cores; on CPUs the library converts each time without it.
        change=Change(busy_removed_s=0.1 * compute_s, busy_cpu_removed_s=0.1 * compute_s),
        least=Change(),
        most=Change(busy_removed_s=0.4 * compute_s, busy_cpu_removed_s=0.4 * compute_s),
        how=f"model.to(memory_format=torch.{layout}); the batches as well",
        settings={"channels_last": True},
        basis="share of computation only; the kernels were not measured in this layout",
        memory_bytes=0,
    )


ENTRY = RemedySpec("channels_last", ("compute_bound",), NUMERICS, "low", _propose)
