"""One training step and one validation step, as a Lightning module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from flatout.loader.contract import Batch
from flatout.loader.finish import Finish
from flatout.recipes.optimization import build_optimizer, lr_share
from flatout.recipes.schema import Recipe


class ImageTask(pl.LightningModule):  # type: ignore[misc]
    """Classifies images: uint8 batches in, losses and accuracies out.

    Attributes:
        planned_epochs: what the learning rate's cosine ends at; a deadline may lower it.
        losses: the loss of each step of this epoch, on the device; read at its end or when logging.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        classes: int,
        lr: float,
        steps_per_epoch: int,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Take a model; ``lr`` is the highest rate, for the global batch; ``report`` is told what fell back."""
        super().__init__()
        self.recipe, self.model, self.lr, self.steps_per_epoch = recipe, model, lr, steps_per_epoch
        self.report = report
        self._compiled: set[bool] = set()  # modes (training or not) in which the compiled model has run
        if recipe.training.compile != "off":
            self.model.compile(mode=None if recipe.training.compile == "default" else recipe.training.compile)
        training, images = recipe.training, recipe.images
        self.finish = Finish(
            mean=images.mean,
            std=images.std,
            classes=classes,
            mixup=training.mixup,
            cutmix=training.cutmix,
            seed=training.seed,
            channels_last=training.channels_last,
        )
        self.criterion = nn.CrossEntropyLoss(label_smoothing=training.label_smoothing)
        self.scored = nn.CrossEntropyLoss(reduction="sum")
        self.top1 = MulticlassAccuracy(classes, average="micro")
        self.top5 = MulticlassAccuracy(classes, average="micro", top_k=min(5, classes))
        self.planned_epochs = float(training.epochs)
        self.losses: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        """The model's logits; where compiling it fails, it runs uncompiled from then on, and the reason is reported."""
        if self.model._compiled_call_impl is None or self.model.training in self._compiled:
            return self.model(images)
        try:
            logits: Tensor = self.model(images)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            self.model._compiled_call_impl = None
            logits = self.model(images)  # what is wrong with the model itself is raised here
            lines = [line for line in str(error).splitlines() if line.strip()]
            why = lines[0].strip()[:300] if lines else ""
            self.report(f"torch.compile failed, going on without it: {type(error).__name__}: {why}")
        self._compiled.add(self.model.training)
        return logits

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Copy the uint8 batch, without waiting for it."""
        return batch.to(device, non_blocking=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The recipe's optimizer; its rate is set before each step."""
        return build_optimizer(self.recipe, self.model, self.lr)

    def stepping(self) -> torch.optim.Optimizer:
        """The one optimizer of this training."""
        found = self.optimizers()
        assert not isinstance(found, list)  # of several optimizers
        return found

    def current_lr(self) -> float:
        """The rate of the next step."""
        schedule = self.recipe.schedule
        done = self.global_step / max(self.steps_per_epoch, 1)
        return self.lr * lr_share(done, self.planned_epochs, schedule.warmup_epochs, schedule.final_lr_share)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Set the learning rate."""
        rate = self.current_lr()
        for group in self.stepping().param_groups:
            group["lr"] = rate

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of one batch."""
        step = self.current_epoch * self.trainer.num_training_batches + batch_idx
        images, targets = self.finish(batch, step, training=True)
        loss: Tensor = self.criterion(self(images), targets)
        self.losses.append(loss.detach())
        return loss

    def on_train_epoch_start(self) -> None:
        """Forget the losses of the last epoch."""
        self.losses = []

    def on_validation_epoch_start(self) -> None:
        """Begin to count anew."""
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
