"""The steps of an image classifier."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from flatout.loader.interfaces import Batch
from flatout.recipes.objective import first_image_step, make_criterion, make_finish
from flatout.recipes.schema import Recipe
from flatout.recipes.task import TrainedTask


class ImageTask(TrainedTask):
    """Classifies images: uint8 batches in, losses and accuracies out."""

    recipe: Recipe

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        classes: int,
        lr: float,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Take a model; ``lr`` is the highest rate, for the global batch; ``report`` is called with each fallback."""
        super().__init__(recipe, model, lr, report)
        self.finish = make_finish(recipe, classes)
        self.criterion = make_criterion(recipe.training)
        self.scored = nn.CrossEntropyLoss(reduction="sum")
        self.top1 = MulticlassAccuracy(classes, average="micro")
        self.top5 = MulticlassAccuracy(classes, average="micro", top_k=min(5, classes))

    def loss_of(self, batch: Batch, step: int) -> Tensor:
        """The loss of one batch."""
        images, targets = self.finish(batch, step, training=True, epoch=self.current_epoch)
        with first_image_step(self.recipe) if not step else nullcontext():
            loss: Tensor = self.criterion(self(images), targets)
        return loss

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
