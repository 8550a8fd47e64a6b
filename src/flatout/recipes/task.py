"""One training step and one validation step, as a Lightning module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from flatout.recipes.any_recipe import AnyRecipe
from flatout.recipes.optimization import LearningRate, build_optimizer


class TrainedTask(pl.LightningModule):  # type: ignore[misc]
    """What the steps of all tasks share: compiling with a fallback, learning rate, accumulation, the record of losses.

    Attributes:
        planned_epochs: end of the learning-rate schedule; a deadline may lower it.
        losses: the loss of each batch of this epoch, on the device; read at its end or when logging.
        rates: the learning rate that each of them was trained with.
    """

    def __init__(
        self, recipe: AnyRecipe, model: nn.Module, lr: float, report: Callable[[str], None] = lambda line: None
    ) -> None:
        """Take a model; ``lr`` is the highest rate, for the global batch; ``report`` is called with each fallback."""
        super().__init__()
        self.recipe, self.model, self.lr = recipe, model, lr
        self.report = report
        self._compiled: set[bool] = set()  # modes (training or not) in which the compiled model has run
        if recipe.training.compile != "off":
            self.model.compile(mode=None if recipe.training.compile == "default" else recipe.training.compile)
        self.planned_epochs = float(recipe.training.epochs)
        self.losses: list[Tensor] = []
        self.rates: list[float] = []
        self._rate: tuple[float, LearningRate] | None = None  # with the planned epochs that it was made for

    def forward(self, samples: Tensor) -> Any:
        """The model's output; if compiling fails, it runs uncompiled from then on, and the reason is reported."""
        if self.model._compiled_call_impl is None or self.model.training in self._compiled:
            return self.model(samples)
        try:
            output = self.model(samples)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            self.model._compiled_call_impl = None
            output = self.model(samples)  # an error of the model itself is raised here
            lines = [line for line in str(error).splitlines() if line.strip()]
            why = lines[0].strip()[:300] if lines else ""
            self.report(f"torch.compile failed, going on without it: {type(error).__name__}: {why}")
        self._compiled.add(self.model.training)
        return output

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Copy the batch asynchronously, as it is stored."""
        return batch.to(device, non_blocking=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The recipe's optimizer; its rate is set before each step."""
        return build_optimizer(self.recipe, self.model, self.lr)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
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

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients as timm does; ``agc`` leaves out the last layer, as its authors do."""
        wanted = self.recipe.training
        if not wanted.clip_gradients:
            return
        from timm.models import model_parameters
        from timm.utils import dispatch_clip_grad

        clipped = model_parameters(self.model, exclude_head=wanted.clip_mode == "agc")
        dispatch_clip_grad(clipped, wanted.clip_gradients, mode=wanted.clip_mode)

    def scores(self) -> dict[str, float]:
        """Metrics of the last validation, over all ranks."""
        raise NotImplementedError

    def loss_of(self, batch: Any, step: int) -> Tensor:
        """The loss of one batch; ``step`` counts the batches of the whole training."""
        raise NotImplementedError

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Loss of one batch."""
        batches = self.trainer.num_training_batches
        loss = self.loss_of(batch, self.current_epoch * batches + batch_idx)
        self.losses.append(loss.detach())
        each = self.recipe.training.accumulate
        left = batches % each
        if left and batch_idx >= batches - left:  # the last step has fewer, but Lightning divides by all
            return loss * (each / left)
        return loss

    def on_train_epoch_start(self) -> None:
        """Forget the losses of the last epoch."""
        self.losses, self.rates = [], []
