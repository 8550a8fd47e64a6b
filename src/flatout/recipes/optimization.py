"""The optimizer, and its learning rate over the training."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from flatout.recipes.schema import Optimizer, Recipe


def scaled_lr(optimizer: Optimizer, global_batch: int) -> tuple[float, str]:
    """The highest learning rate for a global batch, and how it follows.

    Linear scaling after Goyal et al. 2017; the square root is the usual rule for Adam.
    """
    base, reference = optimizer.lr, optimizer.lr_batch_size
    if optimizer.lr_scaling == "off" or global_batch == reference:
        return base, f"{base:g} as the recipe says"
    ratio = global_batch / reference
    if optimizer.lr_scaling == "sqrt":
        return base * math.sqrt(ratio), f"{base:g} × √({global_batch}/{reference})"
    return base * ratio, f"{base:g} × {global_batch}/{reference}"


def lr_share(progress: float, planned: float, warmup: float, final_share: float) -> float:
    """The learning rate as a share of the highest: linear warm-up, then half a cosine.

    Args:
        progress: epochs done, with fractions.
        planned: epochs in all, as planned now.
        warmup: epochs of warm-up; the first step has a small rate, not none.
        final_share: share at the end.
    """
    if progress < warmup:
        return max(progress / warmup, 1e-3)
    done = min(1.0, (progress - warmup) / max(planned - warmup, 1e-9))
    return final_share + (1 - final_share) * 0.5 * (1 + math.cos(math.pi * done))


def build_optimizer(recipe: Recipe, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """SGD or AdamW; biases and norms (parameters of one dimension) are not decayed; fused on a GPU."""
    wanted = recipe.optimizer
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": wanted.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    fused = all(parameter.is_cuda for parameter in trained)
    if wanted.name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=wanted.betas, fused=fused)
    nesterov = wanted.nesterov and wanted.momentum > 0
    made = torch.optim.SGD(groups, lr=lr, momentum=wanted.momentum, nesterov=nesterov, fused=fused)
    if fused and wanted.momentum > 0:
        made.register_step_pre_hook(_begin_momentum)
    return made


def _begin_momentum(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Begin with a momentum of zero.

    The fused SGD of torch allocates it in its first step and fills it there, unless a gradient scaler skips that step
    for an overflow in float16: the second step then goes on from whatever lay in that memory.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter.grad)
