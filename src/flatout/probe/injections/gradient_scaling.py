"""A scaled loss for float16, whose gradients underflow without (Micikevicius et al., 2018)."""

import functools
import weakref
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

_scalers: dict[str, "torch.amp.GradScaler"] = {}  # by device type
_optimizers: Any = weakref.WeakSet()
_unscaled: Any = weakref.WeakSet()  # optimizers, since the scale's last update
_looked_at: set[str] = set()  # device types with gradients that were examined since then


def install():
    """Patch backward, clipping and the optimizers' steps."""
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def scaled_backward(tensors, *args, **kwargs):
        if isinstance(tensors, torch.Tensor) and tensors.numel() == 1:
            kind = tensors.device.type
            if kind not in _scalers:
                _scalers[kind] = torch.amp.GradScaler(kind)
            # Not after each step: a training with several optimizers takes several after one backward pass.
            if kind in _looked_at:
                _scalers[kind].update()
                _looked_at.discard(kind)
                _unscaled.clear()
            tensors = _scalers[kind].scale(tensors)
        return backward(tensors, *args, **kwargs)

    torch.autograd.backward = scaled_backward
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        setattr(torch.nn.utils, name, _unscaling(getattr(torch.nn.utils, name)))
    created = Optimizer.__init__

    @functools.wraps(created)
    def __init__(self, *args, **kwargs):
        created(self, *args, **kwargs)
        _optimizers.add(self)

    Optimizer.__init__ = __init__
    register_optimizer_step_pre_hook(_before_step)


def _unscaling(clip):
    """Unscale first: a clipping threshold is meant for unscaled gradients."""

    @functools.wraps(clip)
    def clip_unscaled(*args, **kwargs):
        for optimizer in list(_optimizers):
            _unscale(optimizer)
        return clip(*args, **kwargs)

    return clip_unscaled


def _scaler_of(optimizer):
    weights = [weight for group in optimizer.param_groups for weight in group["params"] if weight.grad is not None]
    return _scalers.get(weights[0].device.type) if weights else None


def _unscale(optimizer):
    scaler = _scaler_of(optimizer)
    if scaler is not None and optimizer not in _unscaled:
        scaler.unscale_(optimizer)
        _unscaled.add(optimizer)
        _looked_at.update(kind for kind, known in _scalers.items() if known is scaler)


def _before_step(optimizer, args, kwargs):
    scaler = _scaler_of(optimizer)
    if scaler is None:
        return
    _unscale(optimizer)
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
    if any(float(value) for value in found):  # as GradScaler does: this step is skipped
        for group in optimizer.param_groups:
            for weight in group["params"]:
                weight.grad = None
