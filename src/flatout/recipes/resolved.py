"""Quantities that follow from a recipe, the data and the machine, each with its derivation."""

from __future__ import annotations

import torch
from torch import nn

from flatout.loader.choice import Choice
from flatout.machine.snapshot import take_snapshot
from flatout.recipes.interfaces import ImageData
from flatout.recipes.models import count_parameters
from flatout.recipes.optimization import optimizer_states
from flatout.recipes.schema import Recipe
from flatout.units import size

CHANNELS = 3
FLOAT_BYTES = 4


def derive(
    recipe: Recipe,
    data: ImageData,
    model: nn.Module,
    choice: Choice,
    *,
    lr: float,
    how: str,
    world: int,
    steps: int,
) -> list[str]:
    """Lines to be read before a training begins.

    Args:
        recipe: of the training.
        data: its images.
        model: the network, its parameters in float32.
        choice: of the way to build batches.
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
        f"images: {len(data.train_indices):,} for training, {len(data.validation_indices):,} for validation, "
        f"{len(data.classes)} classes",
        f"loader: {choice.reason}",
        f"batch: {batch} images a step, {steps:,} steps an epoch "
        f"({_counted(len(data.train_indices), training.batch_size * world, training.accumulate)}), "
        f"{steps * training.epochs:,} in all",
        f"learning rate: {lr:g} = {how}; warm-up {warmup:,} steps "
        f"= {recipe.schedule.warmup_epochs:g} epochs × {steps:,}, then {recipe.schedule.name}",
        _host_memory(recipe),
        _model_memory(recipe, model),
    ]


def _device(world: int) -> str:
    if not torch.cuda.is_available():
        return f"the CPU, {world} process{'' if world == 1 else 'es'}"
    return f"{world} × {torch.cuda.get_device_name()}"


def _host_memory(recipe: Recipe) -> str:
    """uint8 pixels in flight: batches begun or ready, and the one that the training holds."""
    images, batch = recipe.images, recipe.training.batch_size
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


def _model_memory(recipe: Recipe, model: nn.Module) -> str:
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
        f"model: {trained / 1e6:.1f} M parameters; {where} {size(sum(parts.values()))} = {sum_of}; "
        "activations come on top"
    )
