"""Models of 64-bit floats compute in 32-bit ones; their callers still pass 64-bit tensors, and get such back."""

import functools
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .nested import mapped

_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}
_WIDE = {narrow: wide for wide, narrow in _NARROW.items()}
_converted: "weakref.WeakSet[torch.nn.Module]" = weakref.WeakSet()


def convert(model, injected):
    """Convert the weights and buffers of a model and of its parts in place: optimizers keep their parameters."""
    if not any(tensor.dtype in _NARROW for tensor in model.parameters()):
        injected.refuse("single_precision", "the model has no 64-bit weights")
        return
    model._apply(lambda tensor: _to(_NARROW, tensor) if tensor.dtype in _NARROW else tensor)
    if not _converted:
        _convert_states()
    for part in model.modules():
        _converted.add(part)
    injected.done("single_precision")


def converted(model):
    """True if this module, or one that it is a part of, was converted."""
    return model in _converted


def call(original, model, args, kwargs):
    """Call a converted module with 32-bit tensors; what it returns is made 64-bit again."""
    args, kwargs = mapped((args, kwargs), _is_wide, functools.partial(_to, _NARROW))
    default = torch.get_default_dtype()  # of tensors made inside
    torch.set_default_dtype(_NARROW.get(default, default))
    try:
        result = original(model, *args, **kwargs)
    finally:
        torch.set_default_dtype(default)
    return mapped(result, _is_narrow, functools.partial(_to, _WIDE))


def _is_wide(tensor):
    return tensor.dtype in _NARROW


def _is_narrow(tensor):
    return tensor.dtype in _WIDE


def _to(types, tensor):
    return tensor.to(types[tensor.dtype])


def _convert_states():
    """Optimizers' states that were loaded from a checkpoint before the first step follow the weights."""
    seen: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def narrowed(optimizer, args, kwargs):
        if optimizer in seen:
            return
        seen.add(optimizer)
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if name != "step" and isinstance(value, torch.Tensor) and _NARROW.get(value.dtype) == parameter.dtype:
                    state[name] = _to(_NARROW, value)

    register_optimizer_step_pre_hook(narrowed)
