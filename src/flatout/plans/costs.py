"""What the parts of a training cost, as one record measured them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flatout.compare.speed import speed_of
from flatout.errors import UsageError
from flatout.measure.thresholds import NOISE_SHARE
from flatout.record import Run

BETWEEN_STEPS = ("validation", "checkpoint", "epoch_boundary")


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a training; None: not measured."""

    startup_s: float  # of the command, up to the end of its first step
    step_s: float  # mean, waits included
    error: float  # relative standard deviation of the mean step in another run
    steps: int  # of one epoch
    epoch_end_s: float | None  # validation, checkpoint and the next pass's start, after each epoch
    ending_s: float | None  # after the last step; None: the record was cut before
    notes: tuple[str, ...] = ()

    @property
    def epoch_s(self) -> float:
        """One epoch with its validation and checkpoint."""
        return self.steps * self.step_s + (self.epoch_end_s or 0.0)


def measure_costs(run: Run, steps_per_epoch: int | None = None) -> Costs:
    """Read the costs from a record.

    Args:
        run: the record.
        steps_per_epoch: None: those of the first whole epoch recorded.

    Raises:
        RecordError: too few steps were recorded.
        UsageError: no whole epoch was recorded, and ``steps_per_epoch`` is not given.
    """
    speed = speed_of(run)
    ledger = speed.ledger
    whole = [epoch.steps for epoch in ledger.epochs if epoch.complete]
    steps = steps_per_epoch or (whole[0] if whole else None)
    if steps is None:
        raise UsageError(
            f"{run.id} holds no whole epoch, so the steps of one are not known: give --steps-per-epoch, "
            "or record it for longer"
        )
    ends = sum(epoch.complete for epoch in ledger.epochs)
    between = [ledger.account(id) for id in BETWEEN_STEPS]
    between_s = sum(account.seconds for account in between if account)
    notes = [] if ends else ["validation and checkpoints: not measured, because no whole epoch was recorded"]
    finished = run.info.get("stop") == "finished"
    if not finished:
        notes.append("the time after the last step: not measured, because the recording ended before")
    return Costs(
        startup_s=ledger.startup_s,
        step_s=max(ledger.window_s - between_s, 0.0) / ledger.steps.count,
        error=math.hypot(speed.error, NOISE_SHARE),
        steps=steps,
        epoch_end_s=between_s / ends if ends else None,
        ending_s=ledger.ending_s if finished else None,
        notes=tuple(notes),
    )
