"""Quantities that follow from a recipe, the data and the machine, each with its derivation."""

from __future__ import annotations

import math

import torch
from torch import nn

from flatout.loader.choice import Choice
from flatout.machine.snapshot import take_snapshot
from flatout.recipes.any_recipe import AnyRecipe
from flatout.recipes.interfaces import ImageData, TrainingData
from flatout.recipes.models import count_parameters
from flatout.recipes.optimization import optimizer_states
from flatout.recipes.schema import Recipe
from flatout.units import percent, size

CHANNELS = 3
FLOAT_BYTES = 4
# Share of the first weights in their average at the end: above the one it is a note, the other one is as good as none.
_MOST_OF_THE_START, _SETTLED = 0.5, 0.01


def derive(
    recipe: AnyRecipe,
    data: TrainingData,
    model: nn.Module,
    about: list[str],
    host_memory: str,
    *,
    lr: float,
    how: str,
    world: int,
    steps: int,
) -> list[str]:
    """Lines to be read before a training begins.

    Args:
        recipe: of the training.
        data: of the training.
        model: the network, its parameters in float32.
        about: lines on the data and the loader.
        host_memory: a line on the memory of batches.
        lr: the highest learning rate.
        how: its derivation from the recipe's rate.
        world: number of processes.
        steps: optimizer steps an epoch.
    """
    training = recipe.training
    factors = [str(training.batch_size)]
    if world > 1:
        factors.append(f"{world} processes")
    if training.accumulate > 1:
        factors.append(f"{training.accumulate} accumulated")
    global_batch = training.batch_size * world * training.accumulate
    batch = f"{global_batch} = {' × '.join(factors)}" if len(factors) > 1 else str(global_batch)
    warmup = round(recipe.schedule.warmup_epochs * steps)
    return [
        f"RESOURCES: {take_snapshot().one_line()}; this training uses {_device(world)}",
        *about,
        f"batch: {batch} {data.things} a step, {steps:,} steps an epoch "
        f"({_counted(data.train_count, training.batch_size * world, training.accumulate)}), "
        f"{steps * training.epochs:,} in all",
        f"learning rate: {lr:g} = {how}; warm-up {warmup:,} steps "
        f"= {recipe.schedule.warmup_epochs:g} epochs × {steps:,}, then {recipe.schedule.name}",
        host_memory,
        _model_memory(recipe, model),
    ]


def late_average(recipe: AnyRecipe, steps: int) -> str | None:
    """A note on an average of the weights that is longer than the training; None: it is not.

    After n steps a share of decay^n of the averaged weights is that of the first ones.
    """
    training = recipe.training
    total = steps * training.epochs
    left = training.ema_decay**total if training.ema_decay else 0.0
    if training.ema_warmup or left < _MOST_OF_THE_START:
        return None
    fitting = _SETTLED ** (1 / total)
    return (
        f"training.ema_decay {training.ema_decay:g}: after all {total:,} steps {percent(left)} of the averaged weights,"
        " which are scored and predict, are still those of the start: set training.ema_warmup=true, or "
        f"training.ema_decay={math.floor(1000 * fitting) / 1000:g}"
    )


def describe_images(recipe: Recipe, data: ImageData, choice: Choice) -> tuple[list[str], str]:
    """Lines on the images and on the way to build batches, and one on the memory that these take."""
    return [
        f"images: {data.counts}, {len(data.classes)} classes",
        f"loader: {choice.reason}",
    ], _host_memory(recipe)


def _device(world: int) -> str:
    if not torch.cuda.is_available():
        return f"the CPU, {world} process{'' if world == 1 else 'es'}"
    return f"{world} × {torch.cuda.get_device_name()}"


def _host_memory(recipe: Recipe) -> str:
    """uint8 pixels in flight: batches begun or ready, and the one that the training holds."""
    images, batch = recipe.images, recipe.training.batch_size * recipe.training.splits
    assert images.size is not None, "resolve_images comes first"
    one = batch * images.size**2 * CHANNELS
    count = images.prefetch_batches + 1
    return (
        f"host memory: batches {size(count * one)} = ({images.prefetch_batches} in flight + 1) × "
        f"{batch} × {images.size}² × {CHANNELS} bytes, for each of training and validation"
    )


def _counted(images: int, batch: int, accumulate: int) -> str:
    """Formula of the steps of an epoch: the last one may have fewer batches."""
    batches = f"⌊{images:,} / {batch}⌋"
    return batches if accumulate == 1 else f"⌈{batches} / {accumulate}⌉"


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 100_000 else f"{count:,}"


def _model_memory(recipe: AnyRecipe, model: nn.Module) -> str:
    """Weights, gradients and optimizer state; activations come on top and are not known before a step."""
    trained = count_parameters(model)
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    states = optimizer_states(recipe.optimizer)
    parts = {
        "weights": weights,
        "gradients": trained * FLOAT_BYTES,
        f"{recipe.optimizer.name} ({states} × float32)": states * trained * FLOAT_BYTES,
        "weights' average": weights if recipe.training.ema_decay else 0,
    }
    where = "device memory" if torch.cuda.is_available() else "memory"
    sum_of = " + ".join(f"{name} {size(value)}" for name, value in parts.items() if value)
    return (
        f"model: {_millions(trained)} parameters; {where} {size(sum(parts.values()))} = {sum_of}; "
        "activations come on top"
    )
