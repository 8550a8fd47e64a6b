"""Write logs and metrics every few steps."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    saved_s = 0.9 * case.view.seconds("logging") / case.model.batches
    return Proposal(
        title="log every 10th time",
        change=Change(busy_removed_s=saved_s, busy_cpu_removed_s=saved_s),
        how="if step % 10 == 0: log(...)  # Trainer: log_every_n_steps / logging_steps",
        settings={"log_every": 10},
        recipe="logging.every_steps=500",
        basis="measured time in log and metric writes",
        memory_bytes=0,
    )


ENTRY = RemedySpec("log_less", ("logging",), IDENTICAL, "low", _propose)
