"""The steps of a segmentation of volumes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from flatout.loader.patch_loader import PatchBatch
from flatout.recipes.objective import first_step
from flatout.recipes.task import TrainedTask
from flatout.recipes.volume_data import IGNORE, VolumeData
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.segmentation.augment import augment
from flatout.segmentation.dice import dice_scores, mean_dice, overlap_counts
from flatout.segmentation.draws import Chances, draw
from flatout.segmentation.loss import SegmentationLoss


class VolumeTask(TrainedTask):
    """Segments volumes: stored patches in, loss and Dice out."""

    recipe: VolumeRecipe

    def __init__(
        self,
        recipe: VolumeRecipe,
        model: nn.Module,
        data: VolumeData,
        lr: float,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Take a model; ``lr`` is the highest rate, for the global batch; ``report`` is called with each fallback."""
        super().__init__(recipe, model, lr, report)
        training = recipe.training
        self.classes, self.normalisation, self.class_indices = data.classes, data.normalisation, data.class_indices()
        self.criterion = SegmentationLoss(
            IGNORE, dice=training.dice, cross_entropy=training.cross_entropy, batch_dice=training.batch_dice
        )
        self.chances = Chances(**recipe.augmentation.model_dump())

    def loss_of(self, batch: PatchBatch, step: int) -> Tensor:
        """The loss of one batch, augmented by what its samples' numbers say."""
        # In float32 also where the network's convolutions are not.
        with torch.no_grad(), torch.autocast(batch.images.device.type, enabled=False):
            images, labels = self.normalisation(batch.images)[:, None], self.class_indices(batch.labels)
            draws = [draw(self.chances, self.recipe.training.seed, number) for number in batch.numbers]
            images, labels = augment(images, labels, draws, IGNORE)
        size = " × ".join(str(side) for side in self.recipe.patches.size)
        what = f"{self.recipe.network.kind} with patches of {size} voxels"
        with first_step("patches.size", what, self.recipe.training.batch_size) if not step else nullcontext():
            return self.criterion(self(self._laid_out(images)), labels)

    def _laid_out(self, images: Tensor) -> Tensor:
        last = self.recipe.training.channels_last
        return images.contiguous(memory_format=torch.channels_last_3d) if last else images

    def on_validation_epoch_start(self) -> None:
        """Reset the counts."""
        # No buffers of the module: those are exchanged with the weights' average around a validation.
        self.val_counts = torch.zeros(len(self.classes), 3, dtype=torch.float64, device=self.device)
        self.val_loss = torch.zeros(2, dtype=torch.float64, device=self.device)  # sum over patches, their number

    def validation_step(self, batch: PatchBatch, batch_idx: int) -> None:
        """Score one batch."""
        logits = self(self._laid_out(self.normalisation(batch.images)[:, None])).float()
        labels = self.class_indices(batch.labels)
        loss = self.criterion(logits, labels)
        self.val_loss += torch.stack([loss * len(batch), torch.full_like(loss, len(batch))])
        self.val_counts += overlap_counts(logits.argmax(1), labels, len(self.classes), IGNORE)

    def scores(self) -> dict[str, float]:
        """Loss and Dice of the last validation, over all ranks; Dice of each class where there are several."""
        both: Any = torch.cat([self.val_loss, self.val_counts.flatten()])
        if self.trainer.world_size > 1:
            both = self.trainer.strategy.reduce(both, reduce_op="sum")
        counts = both[2:].view(-1, 3)
        each = dict(zip(self.classes, dice_scores(counts).tolist(), strict=True))
        found = {f"val/dice {name}": score for name, score in list(each.items())[1:]} if len(each) > 2 else {}
        return {"val/loss": float(both[0] / both[1]), "val/dice": mean_dice(counts), **found}
