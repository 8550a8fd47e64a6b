"""Clipping of gradients: something to be done before, and gradients that hold some rows of a table only."""

import functools
import types
from typing import Any

import torch

_CLIPPING = ("clip_grad_norm_", "clip_grad_value_")


def before_clipping(action, *names):
    """Have ``action()`` called before these functions of ``torch.nn.utils``."""
    _wrap(names, functools.partial(_after, action))


def clip_rows_of_sparse_gradients():
    """Have sparse gradients clipped by the values of their rows: those of all others are zero."""
    _wrap(_CLIPPING, _by_values)


def _wrap(names, wrapped):
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in names:
            setattr(module, name, wrapped(getattr(module, name)))


def _after(action, original):
    @functools.wraps(original)
    def clipping(*args, **kwargs):
        action()
        return original(*args, **kwargs)

    return clipping


def _by_values(original):
    @functools.wraps(original)
    def clipping(parameters, *args, **kwargs):
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        return original([_stand_in(one) for one in given], *args, **kwargs)

    return clipping


def _stand_in(parameter) -> Any:
    """What has the values of a parameter's sparse gradient as its gradient; any other parameter itself."""
    gradient = parameter.grad
    if gradient is None or gradient.layout is not torch.sparse_coo:
        return parameter
    parameter.grad = gradient.coalesce()  # a row that was taken twice has one gradient
    return types.SimpleNamespace(grad=parameter.grad._values())
