"""Models and batches of float64 computed in float32: converted where the training first calls a model."""

import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from . import outermost_calls

_converted: set[int] = set()  # ids of outermost modules


def install(injected, watch):
    """Patch the calls of models, and the functions of losses, whose targets may stay float64."""
    if not injected.get("float32"):
        return

    def answer(original, module, args, kwargs):
        if id(module) not in _converted:
            _converted.add(id(module))
            _convert(module, injected)
        if _has_narrow(module) or any(_is_float32(value) for value in (*args, *kwargs.values())):
            args, kwargs = _narrow(args), _narrow(kwargs)
        return original(module, *args, **kwargs)

    outermost_calls.patch(answer)
    for name in vars(functional):
        if name.endswith("_loss") or name in _OTHER_LOSSES:
            setattr(functional, name, _alike(getattr(functional, name)))
    for owner, name in ((torch.Tensor, "lerp_"), (torch.Tensor, "lerp"), (torch, "lerp"), (torch, "_foreach_lerp_")):
        setattr(owner, name, _towards(getattr(owner, name)))


_OTHER_LOSSES = ("binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "kl_div")


def _alike(original):
    """A loss whose float64 tensors become float32 where another one is: it would fail in its backward pass."""

    @functools.wraps(original)
    def loss(*args, **kwargs):
        if any(_is_float32(value) for value in (*args, *kwargs.values())):
            args, kwargs = _narrow(args), _narrow(kwargs)
        return original(*args, **kwargs)

    return loss


def _towards(original):
    """An average of a model, which may have been copied while that was float64, moves towards its new weights."""

    @functools.wraps(original)
    def lerp(mine, end, *args, **kwargs):
        return original(mine, _like(mine, end), *args, **kwargs)

    return lerp


def _like(mine, end):
    if isinstance(end, torch.Tensor):
        return end.to(mine.dtype) if isinstance(mine, torch.Tensor) and _is_float32(end) else end
    if isinstance(end, (tuple, list)) and isinstance(mine, (tuple, list)):
        return [_like(*pair) for pair in zip(mine, end)]
    return end


def _convert(module, injected):
    if not any(tensor.dtype == torch.float64 for tensor in (*module.parameters(), *module.buffers())):
        return
    module.float()  # its parameters stay the same objects, so that an optimizer keeps them
    if torch.get_default_dtype() == torch.float64:
        torch.set_default_dtype(torch.float32)
    if next(torch.nn.Module.parameters(module), None) is not None:
        injected.done("float32")


def _has_narrow(module):
    weight = next(torch.nn.Module.parameters(module), None)
    return weight is not None and weight.dtype == torch.float32


def _is_float32(value):
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _narrow(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.float64 else value
    if type(value) in (tuple, list):
        return type(value)(_narrow(part) for part in value)
    if type(value) is dict:
        return {name: _narrow(part) for name, part in value.items()}
    if isinstance(value, nn.utils.rnn.PackedSequence):
        return value.to(torch.float32) if value.data.dtype == torch.float64 else value
    return value
