"""The earliest possible submission: after the first epoch of a training with a deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flatout.formats.training_folder import SUBMISSION_FILE
from flatout.loader.interfaces import Source
from flatout.recipes.deadline import Deadline
from flatout.recipes.interfaces import EpochRecord
from flatout.recipes.predicting import submit
from flatout.recipes.ranks import this_process

PLENTY = 1_000_000_000


class FirstSubmission:
    """A policy that never ends a fit: it predicts once, which also measures the time of a prediction."""

    planned_epochs = PLENTY

    def __init__(self, folder: Path, test: Source, deadline: Deadline, report: Callable[[str], None]) -> None:
        """Write the submission of ``folder``, once it has a checkpoint."""
        self._folder, self._test, self._deadline, self._report = folder, test, deadline, report
        self._done = (folder / SUBMISSION_FILE).is_file() or not this_process().is_first

    def resumed(self, records: Sequence[EpochRecord]) -> str | None:
        """Nothing ends here."""
        return None

    def after_step(self, epoch: int, step: int) -> str | None:
        """Predict once the second epoch has begun: the first one's checkpoint is then written."""
        if not self._done and epoch > 0:
            self._done = True
            self._deadline.measured_prediction(submit(self._folder, self._test, self._report))
        return None

    def after_epoch(self, record: EpochRecord) -> str | None:
        """Nothing ends here."""
        return None
