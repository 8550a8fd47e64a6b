"""When the steps, passes and ends of one recorded training were: all that a plan knows of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flatout.errors import RecordError
from flatout.measure.ledger import build_ledger
from flatout.measure.loader_processes import loader_processes
from flatout.measure.thresholds import LEAST_STEPS
from flatout.measure.timeline import Floats, Ints
from flatout.measure.training import Training, find_training
from flatout.measure.worker_records import loader_settings
from flatout.record import Run

# Of the start-up, what each further fold repeats: its loader, its first batch and its first step.
OF_A_FOLD = tuple(f"startup.{name}" for name in ("loader_start", "first_batch", "first_step", "compile"))
# With these a pass has dataset_len / batch_size batches; of any other sampler that is not known.
PLAIN_SAMPLERS = ("RandomSampler", "SequentialSampler")


@dataclass(frozen=True)
class Timeline:
    """One row a complete training step. Times are seconds after the start of the command.

    Attributes:
        start_s: its beginning, the wait for its batch included.
        end_s: end of its work.
        epoch: pass over the training data that it belongs to, from 0.
        finish_s: end of the command; None: the recording ended before.
        steps_per_epoch: of a whole pass; None: not known.
        fold_start_s: of the start-up, what another fold of the same process repeats; None: not measured.
    """

    start_s: Floats
    end_s: Floats
    epoch: Ints
    finish_s: float | None = None
    steps_per_epoch: int | None = None
    fold_start_s: float | None = None

    def __len__(self) -> int:
        return len(self.start_s)

    def until(self, at_s: float) -> Timeline:
        """What a recording would have held that ended ``at_s`` after the start."""
        done = int(np.searchsorted(self.end_s, at_s, "right"))
        return replace(
            self, start_s=self.start_s[:done], end_s=self.end_s[:done], epoch=self.epoch[:done], finish_s=None
        )

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
            f"{run.id} holds {count} training steps in its window, and {LEAST_STEPS} are needed to plan: "
            "record it for longer"
        )
    ledger = build_ledger(run, training, loader_processes(run, training))
    steps = training.steps
    inside = steps.work_end_ns <= training.window_end_ns
    began_ns = training.window_begin_ns - round(ledger.startup_s * 1e9)
    startup = {account.id: account.seconds for account in ledger.startup}
    finished = run.info.get("stop") == "finished"
    return Timeline(
        start_s=(steps.start_ns[inside] - began_ns) / 1e9,
        end_s=(steps.work_end_ns[inside] - began_ns) / 1e9,
        epoch=np.unique(steps.epoch[inside], return_inverse=True)[1],
        finish_s=(training.finish_ns - began_ns) / 1e9 if finished else None,
        steps_per_epoch=_declared(training),
        fold_start_s=sum(startup.get(id, 0.0) for id in OF_A_FOLD),
    )


def _declared(training: Training) -> int | None:
    """Steps of a pass by the loader's own settings; None: they do not say."""
    if training.loader is None or training.processes > 1:
        return None  # how several ranks divide the data is not recorded
    loader = loader_settings(training, training.loader)
    samples, batch = loader.get("dataset_len"), loader.get("batch_size")
    if not samples or not batch or str(loader.get("sampler")).rpartition(".")[2] not in PLAIN_SAMPLERS:
        return None
    return int(samples // batch if loader.get("drop_last") else -(-samples // batch)) or None
