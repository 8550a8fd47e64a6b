"""The optimizer, and its learning rate over the training: timm's, by the recipe's names and numbers."""

from __future__ import annotations

import difflib
import math
from typing import Any

import torch
from torch import nn

from flatout.errors import UsageError
from flatout.recipes.any_recipe import AnyRecipe
from flatout.recipes.precision import lightning_precision
from flatout.recipes.sections import ANNEALED, STABLE, Optimizer, Schedule

FUSED = ("adamw", "sgd")  # of torch, with one kernel for all parameters on a GPU
# The schedule's updates of an epoch; timm decays at milestones one of them early.
RESOLUTION = 1_000_000
LEAST_EPOCHS = 1e-3  # of a schedule that a deadline has shortened to less than its warm-up


def scaled_lr(optimizer: Optimizer, global_batch: int) -> tuple[float, str]:
    """The highest learning rate for a global batch, and its derivation.

    Linear scaling after Goyal et al. 2017; the square root is the usual rule for Adam.
    """
    base, reference = optimizer.lr, optimizer.lr_batch_size
    if optimizer.lr_scaling == "off" or global_batch == reference:
        return base, f"{base:g} as the recipe says"
    ratio = global_batch / reference
    if optimizer.lr_scaling == "sqrt":
        return base * math.sqrt(ratio), f"{base:g} × √({global_batch}/{reference})"
    return base * ratio, f"{base:g} × {global_batch}/{reference}"


class LearningRate:
    """Sets the learning rate of an optimizer: a pure function of the progress, so it needs no saved state."""

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Schedule, lr: float, planned: float) -> None:
        """Make timm's scheduler.

        Args:
            optimizer: to set the rate of; layers keep their own share of it (``optimizer.layer_decay``).
            schedule: of the recipe.
            lr: the highest rate.
            planned: total epochs.
        """
        from timm.scheduler import create_scheduler_v2

        for group in optimizer.param_groups:
            group["initial_lr"] = lr
        warmup = schedule.warmup_epochs
        annealed = schedule.name in ANNEALED
        own: dict[str, Any] = {"num_epochs": planned, "decay_epochs": schedule.decay_epochs}
        if annealed:
            cycles = sum(schedule.cycle_growth**number for number in range(schedule.cycles))  # in lengths of the first
            own["num_epochs"] = max((planned - warmup - schedule.cooldown_epochs) / cycles, LEAST_EPOCHS)
        if schedule.name in STABLE:
            own |= {"decay_epochs": schedule.decay_share, "stable_timescale": warmup or 1.0}
        self._scheduler, _ = create_scheduler_v2(
            optimizer,
            sched="step" if schedule.name == "constant" else schedule.name,
            decay_milestones=list(schedule.milestones),
            decay_rate=1.0 if schedule.name == "constant" else schedule.decay_rate,
            cycle_limit=schedule.cycles,
            cycle_mul=schedule.cycle_growth,
            cycle_decay=schedule.cycle_decay,
            k_decay=schedule.k_decay,
            min_lr=lr * schedule.final_lr_share,
            warmup_lr=lr * schedule.warmup_lr_share,
            warmup_epochs=warmup,
            warmup_prefix=annealed,
            step_on_epochs=False,
            updates_per_epoch=RESOLUTION,
            **own,
        )

    def set(self, progress: float) -> None:
        """Set the rate for the step that begins after ``progress`` epochs, with fractions."""
        self._scheduler.step_update(num_updates=progress * RESOLUTION)


def check_optimizer(name: str) -> None:
    """Check that timm has an optimizer.

    Raises:
        UsageError: there is none; the nearest names are given.
    """
    from timm.optim import list_optimizers

    known: list[str] = [str(known) for known in list_optimizers()]
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "timm.optim.list_optimizers() lists what there is"
        raise UsageError(f"optimizer.name: timm has no optimizer {name!r}: {hint}")


def check_schedule_known(name: str) -> None:
    """Check that the installed timm has a schedule.

    Raises:
        UsageError: it is too old.
    """
    from timm import __version__, scheduler

    if name in STABLE and not hasattr(scheduler, "WSDLRScheduler"):
        raise UsageError(f"schedule.name: {name}: timm {__version__} does not have it: pip install --upgrade timm")


def optimizer_states(wanted: Optimizer) -> int:
    """Number of values that an optimizer keeps per parameter, by timm's registry."""
    from timm.optim import get_optimizer_info

    check_optimizer(wanted.name)
    info = get_optimizer_info(wanted.name)
    if info.has_betas:
        return max(1, int(info.num_betas))
    return int(info.has_momentum and wanted.momentum > 0)


def build_optimizer(recipe: AnyRecipe, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """The optimizer of a name in timm; biases, norms and what the model names are not decayed; fused on a GPU.

    Raises:
        UsageError: timm has no such optimizer, it takes no such options, or its package is not installed.
    """
    from timm.optim import create_optimizer_v2

    wanted = recipe.optimizer
    check_optimizer(wanted.name)
    options: dict[str, Any] = dict(wanted.options)
    if wanted.betas is not None:
        options["betas"] = wanted.betas
    if wanted.eps is not None:
        options["eps"] = wanted.eps
    plain_momentum = wanted.name == "sgd" and not (wanted.nesterov and wanted.momentum > 0)
    if wanted.layer_decay is not None and wanted.layer_decay_least:
        options["layer_decay_min_scale"] = wanted.layer_decay_least
    # A fused optimizer divides by the scale of float16 itself, after the gradients were clipped.
    clips_scaled = recipe.training.clip_gradients and lightning_precision(recipe.training.precision) == "16-mixed"
    if wanted.name in FUSED and not clips_scaled and all(parameter.is_cuda for parameter in model.parameters()):
        options.setdefault("fused", True)
    try:
        made: torch.optim.Optimizer = create_optimizer_v2(
            model,
            opt="momentum" if plain_momentum else wanted.name,
            lr=lr,
            weight_decay=wanted.weight_decay,
            momentum=wanted.momentum,
            layer_decay=wanted.layer_decay,
            **options,
        )
    except (TypeError, ValueError, AssertionError, ImportError, RuntimeError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise UsageError(f"optimizer: {wanted.name} cannot be made as the recipe says: {first}") from None
    if wanted.name == "sgd" and wanted.momentum > 0 and options.get("fused"):
        made.register_step_pre_hook(_begin_momentum)
    return made


def _begin_momentum(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Start with a momentum of zero.

    The fused SGD of torch allocates it in its first step and fills it there, unless a gradient scaler skips that step
    for an overflow in float16: the second step then continues from whatever was in that memory.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter.grad)
