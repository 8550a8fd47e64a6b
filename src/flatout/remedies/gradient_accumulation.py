"""Step the optimizer after every second backward pass."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import OPTIMISATION, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    each_s = case.view.seconds("optimizer", "collective") / case.model.batches
    if each_s <= 0:
        return None
    saved_s = 0.5 * each_s
    return Proposal(
        title="step the optimizer after every second batch",
        change=Change(busy_removed_s=saved_s, busy_cpu_removed_s=saved_s),
        least=Change(busy_removed_s=0.3 * saved_s, busy_cpu_removed_s=0.3 * saved_s),
        how="if (step + 1) % 2 == 0: optimizer.step(); optimizer.zero_grad()  # and loss / 2",
        settings={"accumulate": 2},
        basis="measured time of the optimizer and of exchanging gradients; it learns as with twice the batch",
        memory_bytes=0,
    )


ENTRY = RemedySpec("gradient_accumulation", ("small_batch",), OPTIMISATION, "medium", _propose)
