"""The history of a fit: one record an epoch, one row a step, and whether a policy ends it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from flatout.errors import TrainingFailed
from flatout.recipes.checkpoints import LAST, best_path
from flatout.recipes.epoch_clock import EpochClock
from flatout.recipes.interfaces import EpochRecord, Loader, Policy
from flatout.recipes.metric_files import write_metric_files
from flatout.recipes.random_states import random_states, restore_random_states
from flatout.recipes.task import TrainedTask

AGREE_EVERY_S = 1.0  # between agreements with the other processes on stopping: each waits for the device


class FitHistory(pl.Callback):  # type: ignore[misc]
    """Keeps the records of a fit; saved in each checkpoint, so that a resumed fit continues with them."""

    def __init__(
        self,
        loader: Loader,
        folder: Path,
        policies: Sequence[Policy],
        report: Callable[[str], None],
        warning: Callable[[Sequence[EpochRecord]], str | None],
        origin: dict[str, Any],
    ) -> None:
        """Record the epochs of ``loader`` in ``folder``; checkpoints store ``origin`` to identify their training.

        ``warning`` is asked after each epoch for something wrong with all of them so far.
        """
        self.loader, self.folder, self.policies, self.report = loader, folder, policies, report
        self._warning = warning
        self.origin = origin
        self.records: list[EpochRecord] = []
        self.steps: list[tuple[int, int, float, float]] = []  # step, epoch, loss, lr
        self.stopped: str | None = None
        self._why: str | None = None  # why this process wants to stop
        self._agree_every = 1  # steps
        self.notes: list[str] = []
        self._warned: str | None = None  # such as that validation is at chance
        self._restore: dict[str, Any] | None = None
        self.clock = EpochClock(lambda: loader.stats.wait_s)
        self._read = 0  # losses of this epoch that were read
        self._before = 0  # steps of this epoch made before a resume

    def on_save_checkpoint(self, trainer: pl.Trainer, task: TrainedTask, checkpoint: dict[str, Any]) -> None:
        """Add the checkpoint's origin, and whether it was taken inside an epoch."""
        inside = not self.records or self.records[-1].epoch != trainer.current_epoch
        checkpoint["flatout"] = {**self.origin, "inside_epoch": inside}

    def state_dict(self) -> dict[str, Any]:
        """Records and random states, as plain values and tensors."""
        return {
            "records": [asdict(record) for record in self.records],
            "steps": list(self.steps),
            "epoch_s": self.clock.epoch_s,
            "wait_s": self.clock.wait_s,
            **random_states(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the records; the random states are set when the next epoch begins."""
        self.records = [EpochRecord(**record) for record in state["records"]]
        self.steps = [tuple(step) for step in state["steps"]]
        self._restore = state

    def on_train_start(self, trainer: pl.Trainer, task: TrainedTask) -> None:
        """Continue inside an epoch if the checkpoint was taken inside one: Lightning does not begin it again."""
        state = self._restore
        if state is None or not trainer.fit_loop.restarted_mid_epoch:
            return
        self.on_train_epoch_start(trainer, task)
        self._before = sum(epoch == trainer.current_epoch for _, epoch, _, _ in self.steps)
        self.clock.begin(state["epoch_s"], state["wait_s"])

    def on_train_epoch_start(self, trainer: pl.Trainer, task: TrainedTask) -> None:
        """Begin an epoch: set the order of the images, the clocks and the end of the learning-rate schedule."""
        state, self._restore = self._restore, None
        if state is not None:
            restore_random_states(state)
        self.loader.set_epoch(trainer.current_epoch)
        planned = min((p.planned_epochs for p in self.policies), default=trainer.max_epochs)
        before = self.records[-1] if self.records else None
        every = max(1, int(AGREE_EVERY_S * before.steps / before.train_s)) if before else 1
        # The first process decides for all: clocks differ.
        planned, self._agree_every = trainer.strategy.broadcast((planned, every))
        task.planned_epochs = float(planned)
        # The last epoch is always scored: its weights are the result of the training.
        last = trainer.current_epoch + 1 >= planned
        trainer.check_val_every_n_epoch = 1 if last else task.recipe.training.validate_every
        self._read = self._before = 0
        self.clock.begin()

    def on_train_batch_end(
        self, trainer: pl.Trainer, task: TrainedTask, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Query the policies; read losses when due."""
        with self.clock.pause():  # a policy may predict, which is no training
            for policy in self.policies:
                self._why = policy.after_step(trainer.current_epoch, trainer.global_step) or self._why
            if self.policies and (trainer.world_size == 1 or (batch_idx + 1) % self._agree_every == 0):
                self._stop_together(trainer)
        if (batch_idx + 1) % task.recipe.logging.every_steps == 0:
            self.read_losses(trainer, task)

    def read_losses(self, trainer: pl.Trainer, task: TrainedTask) -> None:
        """Read the losses since the last reading: the one place that waits for the device."""
        new = task.losses[self._read :]
        if not new:
            return
        values = torch.stack(new).float()
        rates = task.rates[self._read :]
        if trainer.world_size > 1:
            values = trainer.strategy.reduce(values, reduce_op="mean")
        first = len(task.losses) - len(new)
        before = trainer.current_epoch * trainer.num_training_batches + self._before
        for place, (loss, rate) in enumerate(zip(values.tolist(), rates, strict=True)):
            self.steps.append((before + first + place, trainer.current_epoch, loss, rate))
            if not math.isfinite(loss):
                where = f"step {before + first + place} (epoch {trainer.current_epoch + 1})"
                good = self.last_good()
                saved = f"the last good checkpoint is {good}" if good else "there is no good checkpoint yet"
                raise TrainingFailed(
                    f"the loss became {loss} at {where}: {saved}: "
                    "try a lower optimizer.lr, training.clip_gradients, or precision fp32"
                )
        self._read = len(task.losses)
        self.publish({"train/loss_step": loss, "train/lr": rate}, trainer)

    def publish(self, metrics: dict[str, float], trainer: pl.Trainer) -> None:
        """Hand numbers to the loggers; a recording notes them here, since most recipes have no logger."""
        for logger in trainer.loggers:
            logger.log_metrics(metrics, trainer.global_step)

    def last_good(self) -> Path | None:
        """The checkpoint of the latest epoch whose metrics are all finite, if it still exists."""
        for record in sorted(self.records, key=lambda record: -record.epoch):
            if not all(map(math.isfinite, record.metrics.values())):
                continue
            kept = best_path(self.folder, record.epoch)
            if kept.is_file():
                return kept
            last = self.folder / LAST
            return last if record is self.records[-1] and last.is_file() else None
        return None

    def on_validation_start(self, trainer: pl.Trainer, task: TrainedTask) -> None:
        """Record the end of this epoch's training."""
        self.read_losses(trainer, task)
        self.clock.validation_begins()

    def on_validation_end(self, trainer: pl.Trainer, task: TrainedTask) -> None:
        self.clock.validation_ends()

    def on_train_epoch_end(self, trainer: pl.Trainer, task: TrainedTask) -> None:
        """Close the epoch's record; checkpoints are written after this."""
        self.read_losses(trainer, task)
        epoch = trainer.current_epoch
        own = [loss for _, at, loss, _ in self.steps if at == epoch]
        metrics = {"train/loss": sum(own) / len(own), "lr": self.steps[-1][3]}
        if self.clock.validation_s:
            metrics.update(task.scores())
        record = EpochRecord(
            epoch=epoch,
            steps=len(own),
            samples=len(own) * task.recipe.training.batch_size * trainer.world_size,
            metrics=metrics,
            train_s=self.clock.train_s,
            wait_s=self.clock.wait_s,
            validation_s=self.clock.validation_s,
            checkpoint_s=0.0,
        )
        self.records = [*(old for old in self.records if old.epoch != epoch), record]
        self.publish({**metrics, "epoch": epoch}, trainer)
        if trainer.is_global_zero:
            write_metric_files(self.folder, self.records, self.steps)
        warning = self._warning(self.records)
        self.notes = [note for note in self.notes if note != self._warned]
        if warning:
            self.notes.append(warning)
            if not self._warned:
                self.report(f"WARNING: {warning}")
        elif self._warned:
            self.report("validation is no longer at chance")
        self._warned = warning
        for policy in self.policies:
            self._why = policy.after_epoch(record) or self._why
        self._stop_together(trainer)

    def _stop_together(self, trainer: pl.Trainer) -> None:
        """Stop if any process wants to: one that continued alone would wait for the others forever."""
        if trainer.world_size > 1 and trainer.strategy.reduce_boolean_decision(self._why is not None, all=False):
            self._why = self._why or "another process stopped"
        if self._why is not None:
            self.stopped = self.stopped or self._why
            trainer.should_stop = True
