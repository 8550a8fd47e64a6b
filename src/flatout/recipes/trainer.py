"""The Lightning trainer of a recipe: callbacks, loggers, precision, and the last checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, WeightAveraging
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from flatout.errors import UsageError
from flatout.recipes.any_recipe import AnyRecipe
from flatout.recipes.checkpoints import Checkpoints, WholeFiles
from flatout.recipes.fit_history import FitHistory
from flatout.recipes.precision import lightning_precision
from flatout.recipes.progress import ProgressLine
from flatout.recipes.ranks import this_process

WARMUP_POWER = 2 / 3  # of timm's ModelEmaV3: a decay of 0.999 after 31,600 steps


def build_trainer(recipe: AnyRecipe, folder: Path, history: FitHistory, show_progress: bool, world: int) -> pl.Trainer:
    """The trainer of one fit: callbacks, loggers, precision, devices.

    Raises:
        UsageError: a tracker named by the recipe cannot be used.
    """
    training, kept = recipe.training, recipe.checkpoints
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    callbacks: list[Callback] = [history]
    if training.ema_decay:
        callbacks.append(MovingAverage(training.ema_decay, training.ema_warmup))
    if show_progress:
        callbacks.append(ProgressLine(recipe))
    callbacks.append(Checkpoints(history, folder, kept.metric, kept.keep, kept.every_steps * training.accumulate))
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high" if training.tf32 else "highest")
    local = this_process().local_world_size
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
        callbacks=callbacks,
        logger=found or False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        check_val_every_n_epoch=training.validate_every,
        sync_batchnorm=training.sync_batchnorm and world > 1,
        plugins=[WholeFiles()],
        default_root_dir=folder,
    )


class MovingAverage(WeightAveraging):  # type: ignore[misc]
    """The weights' exponential moving average, exchanged with them for validations."""

    def __init__(self, decay: float, warmup: bool) -> None:
        """Average with ``decay``; ``warmup``: start with a smaller one, as timm's ModelEmaV3 does."""
        self._step = 0  # known on the host: the average's own count is on the device

        def average(averages: Any, weights: Any, updates: Tensor | int) -> None:
            own = min(decay, 1 - (1 + self._step) ** -WARMUP_POWER) if warmup else decay
            get_ema_multi_avg_fn(own)(averages, weights, updates)

        super().__init__(multi_avg_fn=average)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        """Count the steps, also those before a resume."""
        self._step = trainer.global_step
        super().on_train_batch_end(trainer, *args, **kwargs)


def _loggers(recipe: AnyRecipe, folder: Path) -> list[Any]:
    wanted = recipe.logging
    found: list[Any] = []
    from pytorch_lightning import loggers

    if wanted.tensorboard:
        found.append(loggers.TensorBoardLogger(folder, name="tensorboard"))
    if wanted.wandb != "off":
        name, offline = wanted.wandb_name or folder.name, wanted.wandb == "offline"
        found.append(loggers.WandbLogger(name=name, project=wanted.wandb_project, save_dir=folder, offline=offline))
    if wanted.mlflow:
        found.append(loggers.MLFlowLogger(tracking_uri=wanted.mlflow, run_name=folder.name))
    return found
