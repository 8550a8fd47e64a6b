"""What becomes of the gradients that backward passes compute: they are used, or set to zero."""

import functools
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..recorder import report_fault
from ..sites import user_frame
from .gradients import replace_backward

_GRAD: Any = torch.Tensor.grad


def watch(watcher):
    """Tell a watcher of each backward pass, and of what is done with gradients; returns what ends that.

    Args:
        watcher: ``look(tensors)`` returns the leaves that a backward pass is to compute gradients of, None for all;
            ``zeroed(parameters)`` and ``used(parameters)`` are told of gradients; ``pending`` has the ids of those
            parameters that it wants to know of; ``fault(error)`` is called when one of them fails.
    """
    backward = torch.autograd.backward
    by_optimizer, by_module = Optimizer.zero_grad, torch.nn.Module.zero_grad

    def told(function, argument):
        try:
            return function(argument)
        except Exception as error:
            report_fault("gradients")
            watcher.fault(error)
            return None

    @functools.wraps(backward)
    def looked_at(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
        if inputs is None and not create_graph:
            inputs = told(watcher.look, tensors)
        backward(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)

    @functools.wraps(by_optimizer)
    def optimizer_zeroes(optimizer, *args, **kwargs):
        told(watcher.zeroed, parameters_of(optimizer))
        return by_optimizer(optimizer, *args, **kwargs)

    @functools.wraps(by_module)
    def module_zeroes(module, *args, **kwargs):
        told(watcher.zeroed, module.parameters())
        return by_module(module, *args, **kwargs)

    steps = register_optimizer_step_pre_hook(lambda optimizer, *_: told(watcher.used, parameters_of(optimizer)))
    restorers = [
        replace_backward(looked_at),
        _replace(Optimizer, "zero_grad", optimizer_zeroes),
        _replace(torch.nn.Module, "zero_grad", module_zeroes),
        _replace(torch.Tensor, "grad", _reading(watcher, told)),
        steps.remove,
    ]

    def end():
        for restore in restorers:
            restore()

    return end


def _reading(watcher, told):
    """``Tensor.grad``, which notices who reads or replaces it."""

    def get(tensor):
        if id(tensor) in watcher.pending:
            told(watcher.used, (tensor,))
        return _GRAD.__get__(tensor)

    def replaced(tensor, gradient):
        if id(tensor) in watcher.pending:
            told(watcher.zeroed, (tensor,))
        _GRAD.__set__(tensor, gradient)

    return property(get, replaced, lambda tensor: replaced(tensor, None))


def calling_line():
    """File, line and function of the user's code that calls; None: there is none."""
    frame = user_frame()
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name)


def parameters_of(optimizer):
    """All of an optimizer's parameters."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _replace(owner, name, new):
    """Set an attribute of a class; returns what undoes it."""
    own = name in vars(owner)
    original = getattr(owner, name)
    setattr(owner, name, new)

    def restore():
        if vars(owner).get(name) is not new:
            return
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    return restore
