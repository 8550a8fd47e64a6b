"""When the steps, passes and ends of one recorded training were: all that a plan knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flatout.errors import RecordError
from flatout.measure.ledger import build_ledger
from flatout.measure.loader_processes import loader_processes
from flatout.measure.pass_length import declared_steps
from flatout.measure.thresholds import LEAST_STEPS
from flatout.measure.timeline import Floats, Ints
from flatout.measure.training import Training, find_training
from flatout.measure.validation import validation_regions
from flatout.record import Run

# Of the start-up, what each further fold repeats: its loader, its first batch and its first step.
OF_A_FOLD = tuple(f"startup.{name}" for name in ("loader_start", "first_batch", "first_step", "compile"))


@dataclass(frozen=True)
class Timeline:
    """One row a complete training step. Times are seconds after the start of the command.

    Attributes:
        start_s: its beginning, the wait for its batch included.
        end_s: end of its work.
        epoch: pass over the training data that it belongs to, from 0.
        finish_s: end of the command; None: the recording ended before.
        steps_per_epoch: of a whole pass; None: not known.
        by_validation: no passes over a loader were seen: an epoch is what lies between two validations.
        waits: rows of (seconds after the start of the command, seconds that the training had waited for a core by
            then), about one a second; empty: not measured.
        fold_start_s: of the start-up, what another fold of the same process repeats; None: not measured.
    """

    start_s: Floats
    end_s: Floats
    epoch: Ints
    finish_s: float | None = None
    steps_per_epoch: int | None = None
    fold_start_s: float | None = None
    by_validation: bool = False
    waits: Floats = field(default_factory=lambda: np.zeros((0, 2)))

    def __len__(self) -> int:
        return len(self.start_s)

    def until(self, at_s: float) -> Timeline:
        """What a recording would have held that ended ``at_s`` after the start."""
        done = int(np.searchsorted(self.end_s, at_s, "right"))
        return replace(
            self,
            start_s=self.start_s[:done],
            end_s=self.end_s[:done],
            epoch=self.epoch[:done],
            finish_s=None,
            waits=self.waits[self.waits[:, 0] <= at_s],
        )

    @property
    def queued(self) -> float | None:
        """Share of the time after the first step in which the training waited for a core; None: not measured."""
        seen = self.waits[self.waits[:, 0] >= self.end_s[0]]
        return float(np.ptp(seen[:, 1]) / np.ptp(seen[:, 0])) if len(seen) > 1 else None

    def in_epochs_of(self, steps: int) -> Timeline:
        """The same steps counted off in epochs of ``steps``: for trainings without passes over a loader."""
        return replace(self, epoch=np.arange(len(self)) // steps, steps_per_epoch=steps)


def timeline_of(run: Run) -> Timeline:
    """Read a record.

    Raises:
        RecordError: it holds fewer than LEAST_STEPS steps.
    """
    training = find_training(run)
    count = len(training.steps.start_ns[training.in_window]) if training else 0
    if training is None or count < LEAST_STEPS:
        raise RecordError(
            f"{run.path} holds {count} training steps in its window, and {LEAST_STEPS} are needed to plan: "
            "record it for longer, as with a larger --look"
        )
    ledger = build_ledger(run, training, loader_processes(run, training))
    steps = training.steps
    inside = steps.work_end_ns <= training.window_end_ns
    # A step without a loader begins where the last one ended: the validation between two epochs is part of it.
    validated = validation_regions(training).start if training.loader is None else np.zeros(0, np.int64)
    epoch = np.searchsorted(validated, steps.work_end_ns) if len(validated) else steps.epoch
    began_ns = training.window_begin_ns - round(ledger.startup_s * 1e9)
    startup = {account.id: account.seconds for account in ledger.startup}
    finished = run.info.get("stop") == "finished"
    return Timeline(
        start_s=(steps.start_ns[inside] - began_ns) / 1e9,
        end_s=(steps.work_end_ns[inside] - began_ns) / 1e9,
        epoch=np.unique(epoch[inside], return_inverse=True)[1],
        finish_s=(training.finish_ns - began_ns) / 1e9 if finished else None,
        steps_per_epoch=declared_steps(training),
        fold_start_s=sum(startup.get(id, 0.0) for id in OF_A_FOLD),
        by_validation=len(validated) > 0,
        waits=_waits(run, training, began_ns),
    )


def _waits(run: Run, training: Training, began_ns: int) -> Floats:
    """The run-queue time of the training's first thread in each sample up to the end of the window."""
    rows = [
        ((sample["t"] - began_ns) / 1e9, entry["runqueue_s"])
        for sample in run.system()
        if sample["t"] <= training.window_end_ns
        for entry in sample.get("processes") or ()
        if entry["pid"] == training.process.pid and entry.get("runqueue_s") is not None
    ]
    return np.array(rows, dtype=float).reshape(-1, 2)
