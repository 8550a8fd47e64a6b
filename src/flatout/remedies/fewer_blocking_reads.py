"""Keep values on the device until they are logged."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    # The cause's share is the GPU's idle time, which is all that can come back.
    lost_s = case.cause.share * case.model.now.total_s
    site = case.view.lines("device_sync", 1)
    where = f" ({site[0].file}:{site[0].line})" if site else ""
    return Proposal(
        title=f"read values back from the GPU only when they are logged{where}",
        change=Change(busy_removed_s=0.5 * lost_s),
        least=Change(),
        most=Change(busy_removed_s=lost_s),
        how="total += loss.detach(); every N steps: total.item()",
        settings={"lazy_scalars": True},
        basis="idle time of the GPU beside blocking reads: an upper bound, half of it is predicted",
        memory_bytes=0,
    )


ENTRY = RemedySpec("fewer_blocking_reads", ("device_sync",), IDENTICAL, "low", _propose)
