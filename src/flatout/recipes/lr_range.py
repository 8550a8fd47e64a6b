"""Learning-rate range test (Smith 2015): train with a growing rate, and find where the loss falls fastest.

Model, optimizer, random generators and loader are restored afterwards, bit for bit.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flatout.atomic_file import replacing
from flatout.errors import UsageError
from flatout.loader.image_loader import ImageLoader
from flatout.recipes.any_recipe import AnyRecipe
from flatout.recipes.objective import first_image_step, make_criterion, make_finish
from flatout.recipes.optimization import build_optimizer
from flatout.recipes.schema import Recipe

SMOOTHING = 0.9  # of the moving average
DIVERGED = 4.0  # times the lowest loss seen: the test ends
LEAST_POINTS = 20
EDGE = 5  # points ignored at either end: the average has not settled, or the loss explodes
LEAST_FALL = 0.05  # of the loss: less does not count as a fall


@dataclass(frozen=True)
class RangeTest:
    """Result of a range test."""

    lrs: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggestion: float | None
    reason: str
    batch_size: int  # images a step that the rate is for

    def as_json(self) -> dict[str, object]:
        """As plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def range_test(
    recipe: Recipe,
    model: nn.Module,
    loader: ImageLoader,
    classes: int,
    *,
    min_lr: float = 1e-5,
    max_lr: float = 10.0,
    num_training: int = 100,
    optimizer: torch.optim.Optimizer | None = None,
    watch: Callable[[int, float, float], None] = lambda step, lr, loss: None,
) -> RangeTest:
    """Train ``num_training`` steps with rates from ``min_lr`` to ``max_lr``, evenly spaced in their logarithm.

    Args:
        recipe: augmentation, loss, optimizer.
        model: on its device; restored afterwards.
        loader: of the training images; restored afterwards.
        classes: number of classes.
        min_lr: the first rate.
        max_lr: the last rate, if the loss does not diverge earlier.
        num_training: steps.
        optimizer: the one to use, restored afterwards; None: a new one by the recipe.
        watch: called after each step.

    Raises:
        UsageError: rates or steps that do not form a range.
    """
    finish, criterion = make_finish(recipe, classes), make_criterion(recipe.training)

    def loss_of(batch: Any, step: int) -> Tensor:
        images, targets = finish(batch, step, training=True)
        with first_image_step(recipe) if not step else nullcontext():
            return criterion(model(images), targets)

    return sweep(
        recipe,
        model,
        loader,
        loss_of,
        batch_size=loader.order.batch_size,
        min_lr=min_lr,
        max_lr=max_lr,
        num_training=num_training,
        optimizer=optimizer,
        watch=watch,
    )


def sweep(
    recipe: AnyRecipe,
    model: nn.Module,
    loader: Any,
    loss_of: Callable[[Any, int], Tensor],
    *,
    batch_size: int,
    min_lr: float,
    max_lr: float,
    num_training: int,
    optimizer: torch.optim.Optimizer | None = None,
    watch: Callable[[int, float, float], None] = lambda step, lr, loss: None,
) -> RangeTest:
    """The test itself, whatever is trained.

    Args:
        recipe: optimizer and precision.
        model: on its device; restored afterwards.
        loader: of the training batches; restored afterwards.
        loss_of: the loss of a batch on the device, at least 0, and the number of its step.
        batch_size: samples a step.
        min_lr: see ``range_test``, as for the rest.
        max_lr: the last rate.
        num_training: steps.
        optimizer: None: a new one.
        watch: called after each step.

    Raises:
        UsageError: rates or steps that do not form a range.
    """
    if not 0 < min_lr < max_lr:
        raise UsageError(f"--min-lr {min_lr:g} --max-lr {max_lr:g}: give a lowest above 0 and a higher highest")
    if num_training < LEAST_POINTS:
        raise UsageError(f"--num-training {num_training}: give at least {LEAST_POINTS} steps")
    device = next(model.parameters()).device
    lrs: list[float] = []
    losses: list[float] = []
    with _untouched(model, loader, optimizer):
        stepping = optimizer or build_optimizer(recipe, model, min_lr)
        model.train()
        batches = _endless(loader)
        for step in range(num_training):
            lr = min_lr * (max_lr / min_lr) ** (step / (num_training - 1))
            for group in stepping.param_groups:
                group["lr"] = lr * group.get("lr_scale", 1.0)
            with _autocast(recipe.training.precision, device):
                loss = loss_of(next(batches).to(device), step)
            stepping.zero_grad()
            loss.backward()
            stepping.step()
            value = float(loss.detach())
            if not math.isfinite(value):
                break
            lrs.append(lr)
            losses.append(value)
            watch(step, lr, value)
            if len(losses) > LEAST_POINTS and smooth(losses)[-1] > DIVERGED * min(smooth(losses)):
                break
        batches.close()
    smoothed = smooth(losses)
    suggestion, reason = suggest(lrs, smoothed, losses)
    return RangeTest(tuple(lrs), tuple(losses), tuple(smoothed), suggestion, reason, batch_size)


def smooth(losses: Sequence[float]) -> list[float]:
    """Moving average with decay 0.9, corrected for its start as Adam's is."""
    average, smoothed = 0.0, []
    for count, loss in enumerate(losses, 1):
        average = SMOOTHING * average + (1 - SMOOTHING) * loss
        smoothed.append(average / (1 - SMOOTHING**count))
    return smoothed


def suggest(lrs: Sequence[float], smoothed: Sequence[float], losses: Sequence[float]) -> tuple[float | None, str]:
    """The rate where the smoothed loss falls most steeply over the logarithm of the rate; or None with the reason."""
    if len(lrs) < LEAST_POINTS:
        return None, f"the loss diverged after {len(lrs)} steps: begin lower with --min-lr"
    lowest = int(np.argmin(smoothed))
    fall = smoothed[EDGE] - smoothed[lowest]
    noise = float(np.std(np.asarray(losses) - np.asarray(smoothed)))
    if lowest <= 2 * EDGE or fall < LEAST_FALL * smoothed[EDGE]:
        return None, f"the loss does not fall ({smoothed[EDGE]:.3f} to {smoothed[lowest]:.3f}): try another range"
    if fall < 0.5 * noise:
        return None, f"the fall of {fall:.3f} is not told from the noise of {noise:.3f}: give more --num-training"
    slope = np.gradient(np.asarray(smoothed[: lowest + 1]), np.log10(lrs[: lowest + 1]))
    steepest = EDGE + int(np.argmin(slope[EDGE:]))
    return lrs[steepest], (
        f"the smoothed loss falls most steeply at {lrs[steepest]:.3g}; it is lowest at {lrs[lowest]:.3g}"
    )


def _endless(loader: Any) -> Any:
    while True:
        yield from loader


@contextmanager
def _autocast(precision: str, device: torch.device) -> Iterator[None]:
    wanted = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    if precision == "auto" and device.type == "cuda":
        wanted = torch.bfloat16 if torch.cuda.is_bf16_supported() else None
    with torch.autocast(device.type, dtype=wanted, enabled=wanted is not None):
        yield


@contextmanager
def _untouched(model: nn.Module, loader: Any, optimizer: torch.optim.Optimizer | None) -> Iterator[None]:
    """Restore everything: weights, buffers, gradients, modes, optimizer, generators, the loader's position."""
    weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    gradients = [None if p.grad is None else p.grad.detach().clone() for p in model.parameters()]
    modes = [module.training for module in model.modules()]
    stepping = copy.deepcopy(optimizer.state_dict()) if optimizer is not None else None
    place = loader.state_dict()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        with torch.no_grad():
            own = model.state_dict()
            for name, value in weights.items():
                own[name].copy_(value)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        for module, mode in zip(model.modules(), modes, strict=True):
            module.training = mode
        if optimizer is not None and stepping is not None:
            optimizer.load_state_dict(stepping)
        loader.load_state_dict(place)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(cuda)


def save_plot(found: RangeTest, path: Path) -> None:
    """Write the curve as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(found.lrs, found.losses, color="0.8", label="loss")
    axes.plot(found.lrs, found.smoothed, color="tab:blue", label="smoothed")
    if found.suggestion is not None:
        axes.axvline(found.suggestion, color="tab:red", linestyle="--", label=f"suggestion {found.suggestion:.3g}")
    axes.set_xscale("log")
    top = max(found.smoothed) * 1.1
    axes.set_ylim(min(found.losses) * 0.95, top)
    axes.set_xlabel(f"learning rate ({found.batch_size} images a step)")
    axes.set_ylabel("training loss")
    axes.legend()
    with replacing(path) as file:
        figure.savefig(file, dpi=120, format=path.suffix.lstrip(".") or "png")


def terminal_plot(found: RangeTest, width: int = 76, height: int = 15) -> str:
    """The smoothed curve in characters."""
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, height)
    plotext.plot([math.log10(lr) for lr in found.lrs], list(found.smoothed), marker="dot")
    if found.suggestion is not None:
        plotext.vline(math.log10(found.suggestion))
    plotext.xlabel("log10 of the learning rate")
    plotext.title("smoothed training loss")
    text = str(plotext.uncolorize(plotext.build()))
    plotext.clear_figure()
    return text
