"""The same training by three loops: flatout's (Lightning), a plain one, and one of timm's parts; synthetic batches."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from flatout.loader.image_loader import ImageLoader, Stats
from flatout.loader.interfaces import Batch
from flatout.recipes.datasets import open_data
from flatout.recipes.fit_history import FitHistory
from flatout.recipes.image_pipeline import make_loader
from flatout.recipes.image_task import ImageTask
from flatout.recipes.models import build_model
from flatout.recipes.optimization import build_optimizer
from flatout.recipes.precision import lightning_precision
from flatout.recipes.schema import Recipe
from flatout.recipes.trainer import build_trainer

CLASSES = 1000
NOTHING = 1_000_000_000  # a loss is never read for logging


@dataclass(frozen=True)
class Loop:
    """One way to train.

    Attributes:
        name: As in the tables.
        about: What it is made of.
        step_s: From a recipe, warm-up steps and measured steps, the mean seconds of a measured step.
    """

    name: str
    about: str
    step_s: Callable[[Recipe, int, int], float]


def device() -> torch.device:
    """Where it is trained."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _wait() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class Synthetic:
    """One batch on the device, again and again, in the place of the image loader."""

    def __init__(self, recipe: Recipe, steps: int) -> None:
        """Make the batch: uint8, channels last, as the loader gives it."""
        count, size = recipe.training.batch_size, recipe.images.size
        assert size is not None, "the recipe says a size"
        pixels = torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8)
        self._batch = Batch(
            images=pixels.permute(0, 3, 1, 2),
            labels=torch.randint(0, CLASSES, (count,)),
            indices=torch.arange(count),
            flips=torch.rand(count) < 0.5,
        ).to(device())
        self._steps = steps
        self.stats, self.bad, self.choice = Stats(), [], SimpleNamespace(reason="synthetic")

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        return iter([self._batch] * self._steps)

    def set_epoch(self, epoch: int) -> None:
        """Every epoch is the same."""


class _Clock(pl.Callback):
    """Notes the time after the warm-up and after the last step; single steps are not waited for on a GPU."""

    def __init__(self, warm_up: int, steps: int) -> None:
        self.warm_up, self.steps, self.begin, self.end = warm_up, steps, 0.0, 0.0

    def on_train_batch_end(self, trainer: Any, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx + 1 == self.warm_up:
            self.begin = _wait()
        if batch_idx + 1 == self.warm_up + self.steps:
            self.end = _wait()
            trainer.should_stop = True


def flatout_loop(recipe: Recipe, warm_up: int, steps: int, loader: Any = None) -> float:
    """Our training loop with all that a fit has: books, schedule, losses kept, last checkpoint."""
    torch.manual_seed(0)
    loader = loader or Synthetic(recipe, warm_up + steps)
    with tempfile.TemporaryDirectory() as name:
        model = build_model(recipe, CLASSES).to(memory_format=torch.channels_last)
        books = FitHistory(loader, Path(name), [], lambda line: None, lambda records: None, origin={})
        trainer = build_trainer(recipe, Path(name), books, False, 1)
        clock = _Clock(warm_up, steps)
        trainer.callbacks = [books, clock]  # pyright: ignore[reportAttributeAccessIssue]
        trainer.fit(ImageTask(recipe, model, CLASSES, 0.01), loader)
    return (clock.end - clock.begin) / steps


def _prepared(recipe: Recipe) -> tuple[nn.Module, Any, Any, Any, nn.Module]:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = build_model(recipe, CLASSES).to(device()).to(memory_format=torch.channels_last).train()
    optimizer = build_optimizer(recipe, model, 0.01)
    if recipe.training.compile != "off":
        model.compile(mode=None if recipe.training.compile == "default" else recipe.training.compile)
    wanted = str(lightning_precision(recipe.training.precision))
    kinds = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
    autocast: Any = (lambda: torch.autocast(device().type, kinds[wanted])) if wanted in kinds else nullcontext
    scaler = torch.amp.GradScaler(device().type, enabled=wanted == "16-mixed")
    return model, optimizer, autocast, scaler, nn.CrossEntropyLoss(label_smoothing=recipe.training.label_smoothing)


def _ready(recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Normalised floats, made once: the other loops do nothing on the device but the step."""
    count, size = recipe.training.batch_size, recipe.images.size
    assert size is not None, "the recipe says a size"
    images = torch.randn(count, 3, size, size, device=device()).contiguous(memory_format=torch.channels_last)
    return images, torch.randint(0, CLASSES, (count,), device=device())


def plain_loop(recipe: Recipe, warm_up: int, steps: int) -> float:
    """Zero, forward, backward, step: what every training has to do."""
    model, optimizer, autocast, scaler, criterion = _prepared(recipe)
    images, labels = _ready(recipe)
    begin = 0.0
    for step in range(warm_up + steps):
        if step == warm_up:
            begin = _wait()
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return (_wait() - begin) / steps


def timm_loop(recipe: Recipe, warm_up: int, steps: int) -> float:
    """A loop of timm's parts: its scaler, meters and per-update cosine schedule, its loss with smoothing."""
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.scheduler import CosineLRScheduler
    from timm.utils import AverageMeter, NativeScaler, dispatch_clip_grad

    model, optimizer, autocast, scaler, _ = _prepared(recipe)
    criterion = LabelSmoothingCrossEntropy(recipe.training.label_smoothing)
    schedule = CosineLRScheduler(optimizer, t_initial=warm_up + steps, t_in_epochs=False)
    native = NativeScaler(device().type) if scaler.is_enabled() else None
    losses, batch_time = AverageMeter(), AverageMeter()
    images, labels = _ready(recipe)
    begin = last = 0.0
    for step in range(warm_up + steps):
        if step == warm_up:
            begin = _wait()
        with autocast():
            loss = criterion(model(images), labels)
        if native:
            native(loss, optimizer, clip_grad=recipe.training.clip_gradients or None, parameters=model.parameters())
        else:
            loss.backward()
            if recipe.training.clip_gradients:
                dispatch_clip_grad(model.parameters(), recipe.training.clip_gradients)
            optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            losses.update(loss.item(), len(images))
        schedule.step_update(num_updates=step)
        batch_time.update(time.perf_counter() - last)
        last = time.perf_counter()
    return (_wait() - begin) / steps


def fed_loop(recipe: Recipe, warm_up: int, steps: int) -> float:
    """Our loop, fed from JPEG files by our loader; its epoch must be long enough."""
    with make_loader(recipe, open_data(recipe), True) as loader:
        assert len(loader) >= warm_up + steps, (len(loader), warm_up + steps)
        return flatout_loop(recipe, warm_up, steps, loader)


def decode_rate(recipe: Recipe, batches: int = 40) -> float:
    """Images a second that the loader alone delivers: the ceiling that the CPUs set."""
    loader: ImageLoader
    with make_loader(recipe, open_data(recipe), True) as loader:
        coming = iter(loader)
        for _ in range(4):
            next(coming)
        begin, count = time.perf_counter(), 0
        for batch, _ in zip(coming, range(batches), strict=False):
            count += len(batch)
        return count / (time.perf_counter() - begin)


PLAIN, TIMM, FLATOUT = "plain loop", "timm's parts", "flatout"
LOOPS = (
    Loop(FLATOUT, "Lightning, with schedule, losses kept, uint8 batches finished on the device", flatout_loop),
    Loop(PLAIN, "forward, backward, step on ready floats", plain_loop),
    Loop(TIMM, "timm's loss, scaler, schedule and meters on ready floats", timm_loop),
)
