"""Plan folds and epochs into a deadline, from measured times of steps, validation and checkpoints.

Order in which work is dropped: first epochs of each fold, down to a third of the recipe's; then folds; then epochs of
the last fold; finally the epoch is cut. Time for the last validation, checkpoint and prediction is reserved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.recipes.epoch_plan import EpochPlan, plan
from flatout.recipes.interfaces import EpochRecord
from flatout.units import duration, percent

MARGIN = 1.15  # measured times vary; the deadline must hold
EXIT_S = 2.0  # the interpreter's own end, at most a tenth of the limit
MOST_PLANS = 200  # that the file keeps, the latest ones
START_S = 5.0  # reserve for building the next fold's model and loader, until one was measured


class Deadline:
    """A policy for all fits of a training: re-plans after each epoch."""

    def __init__(
        self,
        limit_s: float,
        *,
        epochs: int,
        folds: int = 1,
        began: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], None] = lambda line: None,
        file: Path | None = None,
        resume: bool = False,
    ) -> None:
        """End ``limit_s`` seconds after ``began``.

        Args:
            limit_s: the limit.
            epochs: the recipe's, each fold.
            folds: the recipe's.
            began: start of the time on ``clock``; None: now.
            clock: seconds.
            report: called with each new plan.
            file: records the time used and the plans, after each epoch.
            resume: count the time that ``file`` records as used.

        Raises:
            UsageError: on a resume, the limit was used up before.
        """
        self._clock, self._report, self._file = clock, report, file
        self._began = clock() if began is None else began
        self._plans: list[dict[str, float]] = []
        if resume and file is not None and file.is_file():
            used_s, self._plans = _used(file)
            self._began -= used_s
        self._end = self._began + limit_s - min(EXIT_S, 0.1 * limit_s)
        if resume and clock() >= self._end:
            raise UsageError(
                f"training.max_time: the {duration(limit_s)} are over: {duration(clock() - self._began)} were used: "
                "give a longer --max-time"
            )
        self.limit_s, self.epochs, self.folds = limit_s, epochs, folds
        self.folds_done = 0
        self._epoch_s: list[float] = []
        self._after_training_s: list[float] = []  # validation and checkpoint of each epoch
        self._step_s = 0.0
        self._prediction_s = 0.0
        self._fold_start_s = START_S
        self._fold_ended: float | None = None
        self._epoch_began = clock()
        self._steps = 0
        self._planned = epochs
        self._said: tuple[int, int] | None = None  # folds and epochs of the last reported plan

    @property
    def planned_epochs(self) -> int:
        """Epochs of the current fit."""
        return max(self._planned, 1)

    @property
    def left_s(self) -> float:
        """Time until the deadline, less a reserve for one prediction (as long as a validation until measured)."""
        prediction = self._prediction_s or max(self._after_training_s, default=0.0)
        return self._end - self._clock() - MARGIN * prediction

    def measured_prediction(self, seconds: float) -> None:
        """Record the time of one prediction of the test set; it is part of no epoch."""
        self._prediction_s = max(self._prediction_s, seconds)
        self._epoch_began += seconds

    def fit_begins(self) -> None:
        """A fit is about to make its first step."""
        if self._fold_ended is not None:
            self._fold_start_s = max(self._fold_start_s, self._clock() - self._fold_ended)
            self._fold_ended = None
        self._epoch_began, self._steps = self._clock(), 0

    def fold_ended(self) -> None:
        """A fold is complete."""
        self.folds_done += 1
        self._save()
        self._fold_ended = self._clock()

    def room_for_a_fold(self) -> bool:
        """True if another fold can be trained with the planned number of epochs."""
        if not self._epoch_s:
            return self.left_s > 0
        made = self._plan(epochs_done=0, start_s=self._fold_start_s)
        self._planned = made.epochs
        return made.fits and self.left_s > 0

    def resumed(self, records: Sequence[EpochRecord]) -> str | None:
        """Never end a resumed fit: the limit may have changed."""
        return None

    def after_step(self, epoch: int, step: int) -> str | None:
        """End the epoch when only the last validation and checkpoint still fit.

        Raises:
            UsageError: the deadline has passed after the very first step.
        """
        now = self._clock()
        self._steps += 1
        if self._steps == 1 and not self._epoch_s and not self.folds_done and now >= self._end:
            raise UsageError(
                f"training.max_time: {duration(self.limit_s)} is too short for one step: the first one ended "
                f"{duration(now - self._began)} after the start (measured): give more time"
            )
        if self._steps > 1:  # the first includes the start-up
            self._step_s = max(self._step_s, (now - self._epoch_began) / self._steps)
        reserve = MARGIN * (max(self._after_training_s, default=0.05 * self.limit_s) + self._step_s)
        if self.left_s <= reserve:
            return (
                f"the deadline of {duration(self.limit_s)}: {duration(max(self.left_s, 0.0))} left for the last steps"
            )
        return None

    def after_epoch(self, record: EpochRecord) -> str | None:
        """Measure the epoch, re-plan, and end the fit once its planned epochs are done."""
        now = self._clock()
        self._epoch_s.append(max(now - self._epoch_began, record.train_s))
        self._after_training_s.append(max(now - self._epoch_began - record.train_s, record.validation_s))
        self._epoch_began, self._steps = now, 0
        done = record.epoch + 1
        made = self._plan(epochs_done=done)
        self._plans.append(
            {
                "at_s": now - self._began,
                "folds_done": self.folds_done,
                "epochs_done": done,
                "epoch_s": _typical(self._epoch_s),
                "folds": made.folds,
                "epochs": made.epochs,
                "needed_s": made.needed_s,
                "left_s": made.left_s,
            }
        )
        self._save()
        self._planned = max(made.epochs, done)
        self._say(made)
        if done >= self.epochs:
            return None
        if done >= made.epochs or not made.fits:
            return f"the deadline of {duration(self.limit_s)} leaves room for {done} epochs here"
        return None

    def _save(self) -> None:
        if self._file is not None:
            recipe = {"limit_s": self.limit_s, "epochs": self.epochs, "folds": self.folds}
            used = {"used_s": self._clock() - self._began, "plans": self._plans[-MOST_PLANS:]}
            write_atomically(self._file, json.dumps({**used, **recipe}))

    def _plan(self, epochs_done: int, start_s: float = 0.0) -> EpochPlan:
        return plan(
            self.left_s - start_s,
            epoch_s=MARGIN * _typical(self._epoch_s),
            fold_overhead_s=self._fold_start_s + self._prediction_s,
            epochs=self.epochs,
            folds=self.folds,
            folds_done=self.folds_done,
            epochs_done=epochs_done,
        )

    def _say(self, made: EpochPlan) -> None:
        if (made.folds, made.epochs) != self._said:
            self._said = made.folds, made.epochs
            self._report(feasibility(_typical(self._epoch_s), self.limit_s, self.epochs, self.folds, made))


def _used(file: Path) -> tuple[float, list[dict[str, float]]]:
    """Seconds used by earlier runs, and their plans, read from ``file``.

    Raises:
        UsageError: the file is unreadable or damaged.
    """
    try:
        found = json.loads(file.read_text("utf-8"))
        return float(found["used_s"]), [plan for plan in found.get("plans", []) if isinstance(plan, dict)]
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{file}: does not say how much of the time was used: remove it to begin anew") from None


def _typical(values: list[float]) -> float:
    """Median of the values without the first, which includes the start-up."""
    later = values[1:] or values
    return sorted(later)[len(later) // 2]


def feasibility(epoch_s: float, limit_s: float, epochs: int, folds: int, made: EpochPlan) -> str:
    """Time of the whole recipe at the measured epoch time, compared with the part that fits.

    A plan that fits does less work; it is not faster.
    """
    whole = epoch_s * epochs * folds
    if whole <= limit_s and made.folds == folds and made.epochs == epochs:
        return f"deadline: an epoch takes {duration(epoch_s)} (measured); all {folds * epochs} fit"
    return (
        f"deadline: an epoch takes {duration(epoch_s)} (measured), so {folds} × {epochs} epochs would take "
        f"{duration(whole)} of {duration(limit_s)}; planned: {made.folds} × {made.epochs}, "
        f"{percent(made.folds * made.epochs / (folds * epochs))} of the work"
    )
