"""One training step and one validation step, as a Lightning module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from flatout.loader.interfaces import Batch
from flatout.recipes.objective import first_step, make_criterion, make_finish
from flatout.recipes.optimization import LearningRate, build_optimizer
from flatout.recipes.schema import Recipe


class ImageTask(pl.LightningModule):  # type: ignore[misc]
    """Classifies images: uint8 batches in, losses and accuracies out.

    Attributes:
        planned_epochs: end of the learning-rate schedule; a deadline may lower it.
        losses: the loss of each batch of this epoch, on the device; read at its end or when logging.
        rates: the learning rate that each of them was trained with.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        classes: int,
        lr: float,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Take a model; ``lr`` is the highest rate, for the global batch; ``report`` is called with each fallback."""
        super().__init__()
        self.recipe, self.model, self.lr = recipe, model, lr
        self.report = report
        self._compiled: set[bool] = set()  # modes (training or not) in which the compiled model has run
        if recipe.training.compile != "off":
            self.model.compile(mode=None if recipe.training.compile == "default" else recipe.training.compile)
        self.finish = make_finish(recipe, classes)
        self.criterion = make_criterion(recipe.training)
        self.scored = nn.CrossEntropyLoss(reduction="sum")
        self.top1 = MulticlassAccuracy(classes, average="micro")
        self.top5 = MulticlassAccuracy(classes, average="micro", top_k=min(5, classes))
        self.planned_epochs = float(recipe.training.epochs)
        self.losses: list[Tensor] = []
        self.rates: list[float] = []
        self._rate: tuple[float, LearningRate] | None = None  # with the planned epochs that it was made for

    def forward(self, images: Tensor) -> Tensor:
        """The model's logits; if compiling fails, it runs uncompiled from then on, and the reason is reported."""
        if self.model._compiled_call_impl is None or self.model.training in self._compiled:
            return self.model(images)
        try:
            logits: Tensor = self.model(images)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            self.model._compiled_call_impl = None
            logits = self.model(images)  # an error of the model itself is raised here
            lines = [line for line in str(error).splitlines() if line.strip()]
            why = lines[0].strip()[:300] if lines else ""
            self.report(f"torch.compile failed, going on without it: {type(error).__name__}: {why}")
        self._compiled.add(self.model.training)
        return logits

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Copy the uint8 batch asynchronously."""
        return batch.to(device, non_blocking=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The recipe's optimizer; its rate is set before each step."""
        return build_optimizer(self.recipe, self.model, self.lr)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Set the learning rate: the same for all batches that are accumulated."""
        found = self.optimizers()
        assert not isinstance(found, list)  # of several optimizers
        optimizer = found.optimizer
        if self._rate is None or self._rate[0] != self.planned_epochs:
            rate = LearningRate(optimizer, self.recipe.schedule, self.lr, self.planned_epochs)
            self._rate = (self.planned_epochs, rate)
        each = self.recipe.training.accumulate
        first = batch_idx // each * each
        self._rate[1].set(self.current_epoch + first / self.trainer.num_training_batches)
        self.rates.append(max(group["lr"] for group in optimizer.param_groups))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of one batch."""
        batches = self.trainer.num_training_batches
        step = self.current_epoch * batches + batch_idx
        images, targets = self.finish(batch, step, training=True, epoch=self.current_epoch)
        with first_step(self.recipe) if not step else nullcontext():
            loss: Tensor = self.criterion(self(images), targets)
        self.losses.append(loss.detach())
        each = self.recipe.training.accumulate
        left = batches % each
        if left and batch_idx >= batches - left:  # the last step has fewer, but Lightning divides by all
            return loss * (each / left)
        return loss

    def on_train_epoch_start(self) -> None:
        """Forget the losses of the last epoch."""
        self.losses, self.rates = [], []

    def on_validation_epoch_start(self) -> None:
        """Reset the counts."""
        for counter in (self.top1, self.top5):
            counter.reset()
        # No buffers of the module: those are exchanged with the weights' average around a validation.
        self.val_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self.val_images = torch.zeros((), dtype=torch.float64, device=self.device)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Score one batch."""
        images, labels = self.finish(batch, 0, training=False)
        logits = self(images).float()
        self.val_loss += self.scored(logits, labels)
        self.val_images += len(labels)
        self.top1.update(logits, labels)
        self.top5.update(logits, labels)

    def scores(self) -> dict[str, float]:
        """Metrics of the last validation, over all ranks."""
        loss, images = self.val_loss, self.val_images
        if self.trainer.world_size > 1:
            both: Any = self.trainer.strategy.reduce(torch.stack([loss, images]), reduce_op="sum")
            loss, images = both[0], both[1]
        return {
            "val/loss": float(loss / images),
            "val/acc1": float(self.top1.compute()),
            "val/acc5": float(self.top5.compute()),
        }
