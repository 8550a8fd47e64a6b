"""The Lightning trainer of a recipe: callbacks, loggers, precision, and the last checkpoint."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EMAWeightAveraging, ModelCheckpoint

from flatout.errors import UsageError
from flatout.recipes.bookkeeping import Books, TrainingFailed
from flatout.recipes.progress import ProgressLine
from flatout.recipes.schema import Recipe
from flatout.recipes.task import ImageTask

LAST = "last.ckpt"


def build_trainer(recipe: Recipe, folder: Path, books: Books, show_progress: bool, world: int) -> pl.Trainer:
    """The trainer of one fit: callbacks, loggers, precision, devices.

    Raises:
        UsageError: a logger that the recipe asks for is not installed.
    """
    training, kept = recipe.training, recipe.checkpoints
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    callbacks: list[Callback] = [books]
    if training.ema_decay:
        callbacks.append(EMAWeightAveraging(decay=training.ema_decay))
    if show_progress:
        callbacks.append(ProgressLine(recipe))
    callbacks.append(
        ModelCheckpoint(
            folder,
            filename="best-{epoch:03d}",
            monitor=kept.metric,
            mode="min" if kept.metric.endswith("loss") else "max",
            save_top_k=kept.keep,
            save_last=False,
            save_on_train_epoch_end=True,
            auto_insert_metric_name=False,
        )
    )
    callbacks.append(Last(books, folder / LAST, kept.every_steps * training.accumulate))
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high" if training.tf32 else "highest")
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    try:
        found = _loggers(recipe, folder)
        for logger in found:
            logger.log_hyperparams(recipe.model_dump(mode="json"))
    except UsageError:
        raise
    except Exception as error:  # an address that cannot be reached, a tracker that is not set up
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"logging: a tracker cannot be used: {first}") from None
    return pl.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=local,
        num_nodes=max(1, world // local),
        strategy="ddp" if world > 1 else "auto",
        precision=lightning_precision(training.precision),
        max_epochs=training.epochs,
        accumulate_grad_batches=training.accumulate,
        gradient_clip_val=training.clip_gradients or None,
        callbacks=callbacks,
        logger=found or False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        default_root_dir=folder,
    )


class Last(Callback):  # type: ignore[misc]
    """Writes ``last.ckpt`` after each epoch, and within epochs every so many batches; Lightning replaces it at once."""

    def __init__(self, books: Books, path: Path, every_batches: int) -> None:
        """Write to ``path``; ``every_batches`` 0: after epochs only."""
        self._books, self._path, self._every = books, path, every_batches

    def on_train_batch_end(
        self, trainer: pl.Trainer, task: ImageTask, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save inside the epoch."""
        done = batch_idx + 1
        if self._every and done % self._every == 0 and done < trainer.num_training_batches:
            self._books.read_losses(trainer, task)
            self._save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, task: ImageTask) -> None:
        """Save the epoch."""
        self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        try:
            trainer.save_checkpoint(self._path)
        except OSError as error:
            raise TrainingFailed(
                f"{self._path}: {error.strerror or error}: the checkpoint could not be written; earlier ones are whole"
            ) from None
        self._books.last_saved = self._path


def _loggers(recipe: Recipe, folder: Path) -> list[Any]:
    wanted = recipe.logging
    found: list[Any] = []
    from pytorch_lightning import loggers

    for key, package, asked, off in (
        ("tensorboard", "tensorboard", wanted.tensorboard, "false"),
        ("wandb", "wandb", wanted.wandb != "off", "off"),
        ("mlflow", "mlflow", wanted.mlflow, "null"),
    ):
        if asked and find_spec(package) is None:
            raise UsageError(f"logging.{key}: not installed: pip install {package}, or set it to {off}")
    if wanted.tensorboard:
        found.append(loggers.TensorBoardLogger(folder, name="tensorboard"))
    if wanted.wandb != "off":
        name, offline = wanted.wandb_name or folder.name, wanted.wandb == "offline"
        found.append(loggers.WandbLogger(name=name, project=wanted.wandb_project, save_dir=folder, offline=offline))
    if wanted.mlflow:
        found.append(loggers.MLFlowLogger(tracking_uri=wanted.mlflow, run_name=folder.name))
    return found


def lightning_precision(wanted: str) -> Any:
    """The precision in Lightning's words; ``auto``: bf16 where the GPU has it, else fp16, fp32 on a CPU."""
    if wanted == "auto":
        if not torch.cuda.is_available():
            return "32-true"
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"
    return {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}[wanted]
