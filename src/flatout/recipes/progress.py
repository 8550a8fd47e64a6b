"""The moving line of a training on standard error, and a line an epoch."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.live import Live
from rich.text import Text

from flatout.terminal_text import folded
from flatout.units import duration, percent

REFRESH_S = 0.25


class ProgressLine(pl.Callback):  # type: ignore[misc]
    """Shows it/s, samples/s, the share of waiting and the time left; plain lines if there is no terminal."""

    def __init__(self, recipe: Any) -> None:
        """Show a training of ``recipe``."""
        self._batch = recipe.training.batch_size
        self._live: Live | None = None
        self._began = self._shown = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, task: Any) -> None:
        """Begin an epoch."""
        self._began = self._shown = time.perf_counter()
        if sys.stderr.isatty() and self._live is None:
            self._live = Live(console=Console(file=sys.stderr), refresh_per_second=4, transient=True)
            self._live.start()

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Move the line now and then."""
        now = time.perf_counter()
        if self._live is None or now - self._shown < REFRESH_S:
            return
        self._shown = now
        steps, all_steps = batch_idx + 1, trainer.num_training_batches
        rate = steps / (now - self._began)
        history = next((c for c in _callbacks(trainer) if hasattr(c, "clock")), None)
        waited = history.clock.wait_s / (now - self._began) if history else 0.0
        left = (all_steps - steps + (task.planned_epochs - trainer.current_epoch - 1) * all_steps) / rate
        self._live.update(
            Text(
                f"epoch {trainer.current_epoch + 1}/{task.planned_epochs:g}  step {steps}/{all_steps}  "
                f"{rate:.2f} it/s  "
                f"{rate * self._batch * trainer.world_size:,.0f} samples/s  wait {percent(waited)}  "
                f"{duration(left)} left",
                no_wrap=True,
                overflow="ellipsis",
            )
        )

    def on_train_epoch_end(self, trainer: pl.Trainer, task: Any) -> None:
        """One line that stays."""
        history = next(c for c in _callbacks(trainer) if hasattr(c, "records"))
        record = history.records[-1]
        scores = "  ".join(
            f"{name} {100 * value:.1f}%" if "acc" in name else f"{name} {value:.3f}"
            for name, value in sorted(record.metrics.items())
            if name not in ("lr", "val/acc5")  # metrics.csv has them
        )
        line = (
            f"epoch {record.epoch + 1}/{task.planned_epochs:g}  {scores}  "
            f"{record.samples / record.train_s:,.0f} samples/s  wait {100 * record.wait_s / record.train_s:.0f}%"
        )
        if self._live is not None:
            self._live.console.print("\n".join(folded(line)), highlight=False, soft_wrap=True)
        else:
            print("\n".join(folded(line)), file=sys.stderr)

    def teardown(self, trainer: pl.Trainer, task: Any, stage: str) -> None:
        """End the line, however the fit ended."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _callbacks(trainer: pl.Trainer) -> list[Any]:
    """All callbacks of a trainer; Lightning sets that attribute without declaring it in a class."""
    return list(trainer.callbacks)  # pyright: ignore[reportAttributeAccessIssue]
