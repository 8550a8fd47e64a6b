"""Forward and backward passes of one of the training's modules, between two steps.

Gradients and buffers are as before afterwards; so are random numbers within ``same_random_numbers``.
"""

import contextlib
import random
import sys
from typing import Any

import torch

from .device_rates import finish_kernels
from .kept_batches import NotDoubled, doubled
from .recorder import REC, now


class ModulePasses:
    """The passes of one module.

    Args:
        module: is called.
        args: of a call.

    Raises:
        NotDoubled: there are no samples in them, or the user's hooks would see the passes.
    """

    def __init__(self, module, args):
        if any(_hooked(part) for part in module.modules()):
            raise NotDoubled("hooks on the model would see its passes")
        self._module, self._args = module, args
        self.size = len(args[0]) if args and isinstance(args[0], torch.Tensor) and args[0].dim() else 0
        if not self.size:
            raise NotDoubled("the model's first argument is no tensor with samples")

    def joined(self, times):
        """The arguments for this many times the samples, a power of two.

        Raises:
            NotDoubled: they cannot be joined.
        """
        args, size = self._args, self.size
        while times > 1:
            args, size, times = tuple(_twice(one, size) for one in args), 2 * size, times // 2
        return args

    def take_ns(self, calls):
        """Time of the forward passes with each of these arguments in turn, and of a backward pass through all."""
        inputs = [one for args in calls[:1] for one in args]
        sources = [one for one in (*self._module.parameters(), *inputs) if getattr(one, "requires_grad", False)]
        buffers = [(buffer, buffer.detach().clone()) for buffer in self._module.buffers()]
        try:
            finish_kernels()
            start = now()
            with _precision(inputs[0].device):
                outputs = [one for args in calls for one in _with_gradients(self._module(*args))]
            torch.autograd.grad(outputs, sources, [torch.ones_like(one) for one in outputs], allow_unused=True)
            finish_kernels()
            return now() - start
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


@contextlib.contextmanager
def same_random_numbers():
    """Restore the generators of torch, Python and NumPy at the end."""
    numpy: Any = sys.modules.get("numpy")
    of_python, of_numpy = random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
            yield
    finally:
        random.setstate(of_python)
        if of_numpy is not None:
            numpy.random.set_state(of_numpy)


def kept_arguments(args):
    """The arguments, apart from the graph that made them."""
    return tuple(
        one.detach().requires_grad_(one.requires_grad) if isinstance(one, torch.Tensor) else one for one in args
    )


def _precision(device):
    """That of the training's first autocast, if it has one."""
    name = REC.process.get("autocast")
    return torch.autocast(device.type, dtype=getattr(torch, name)) if name else contextlib.nullcontext()


def _twice(argument, size):
    """An argument for twice the samples; one that holds no tensors stays."""
    if isinstance(argument, (torch.Tensor, list, tuple, dict)):
        made: Any = doubled(argument, size)
        return made.requires_grad_(argument.requires_grad) if isinstance(argument, torch.Tensor) else made
    return argument


def _hooked(module):
    return module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks


def _with_gradients(output):
    found = [one for one in _tensors(output) if one.requires_grad]
    if not found:
        raise NotDoubled("the model's output has no tensors with gradients")
    return found


def _tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    return [one for part in output for one in _tensors(part)] if isinstance(output, (list, tuple)) else []
