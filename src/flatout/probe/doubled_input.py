"""The model alone, on an input of the training and on that input joined to itself: what of its passes grows with it.

For trainings whose batches no DataLoader gives; of others, whole steps are measured. The passes run between two steps,
after the window; gradients, buffers and random numbers are as before afterwards.
"""

import contextlib
from typing import Any

import torch
from torch.nn.modules import module as torch_modules

from .device_rates import finish_kernels
from .kept_batches import NotDoubled, doubled
from .recorder import REC, now, quietly

MOST_MODELS = 4
ROUNDS = 7
BUDGET_NS = 1_500_000_000


class DoubledInput:
    """The inputs of the training's models, and the time of their passes."""

    def __init__(self):
        self._calls: Any = {}  # id of a module -> it, its arguments
        self._inside: Any = None  # the outermost module that runs
        self._hooks: Any = []

    def watch(self):
        """Note the input of each model in the steps that follow; returns what ends that."""
        self._hooks = [
            torch_modules.register_module_forward_pre_hook(self._begins),
            torch_modules.register_module_forward_hook(self._ends),
        ]
        return self.unwatch

    def unwatch(self):
        """Note no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @quietly
    def _begins(self, module, args):
        if self._inside is None and torch.is_grad_enabled():
            self._inside = module
            if module.training and len(self._calls) < MOST_MODELS and next(module.parameters(), None) is not None:
                self._calls[id(module)] = module, _kept(args)

    def _ends(self, module, args, output):
        if module is self._inside:
            self._inside = None

    def measured(self):
        """For the record: samples and ns of the passes with them and with twice as many; or why there are none."""
        calls, self._calls = list(self._calls.values()), {}
        if not calls:
            return {"skipped": "no model was called with gradients"}
        try:
            passes = [_Passes(*call) for call in calls]
            single_ns, doubled_ns = [], []
            begun_ns = now()
            with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
                for number in range(ROUNDS + 1):
                    pair = [sum(one.take_ns(twice) for one in passes) for twice in (False, True)]
                    if number:  # memory is reserved in the first
                        single_ns.append(pair[0])
                        doubled_ns.append(pair[1])
                    if now() - begun_ns > BUDGET_NS:
                        break
        except NotDoubled as error:
            return {"skipped": str(error)}
        except Exception as error:
            return {"skipped": "it raised %s: %s" % (type(error).__name__, str(error)[:200])}
        return {"samples": passes[0].size, "single_ns": single_ns, "doubled_ns": doubled_ns}


class _Passes:
    """Forward and backward pass of one model.

    Raises:
        NotDoubled: its input cannot be joined to itself, or the user's hooks would see the passes.
    """

    def __init__(self, module, args):
        if any(_hooked(part) for part in module.modules()):
            raise NotDoubled("hooks on the model would see its passes")
        self._module = module
        self.size = len(args[0]) if args and isinstance(args[0], torch.Tensor) and args[0].dim() else 0
        if not self.size:
            raise NotDoubled("the model's first argument is no tensor with samples")
        self._inputs = args, tuple(_twice(one, self.size) for one in args)

    def take_ns(self, twice):
        """Time of both passes."""
        args = self._inputs[twice]
        sources = [one for one in (*self._module.parameters(), *args) if getattr(one, "requires_grad", False)]
        buffers = [(buffer, buffer.detach().clone()) for buffer in self._module.buffers()]
        try:
            finish_kernels()
            start = now()
            with _precision(self._inputs[twice][0].device):
                outputs = _with_gradients(self._module(*args))
            torch.autograd.grad(outputs, sources, [torch.ones_like(one) for one in outputs], allow_unused=True)
            finish_kernels()
            return now() - start
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def _precision(device):
    """That of the training's first autocast, if it has one."""
    name = REC.process.get("autocast")
    return torch.autocast(device.type, dtype=getattr(torch, name)) if name else contextlib.nullcontext()


def _kept(args):
    """The arguments, apart from the graph that made them."""
    return tuple(
        one.detach().requires_grad_(one.requires_grad) if isinstance(one, torch.Tensor) else one for one in args
    )


def _twice(argument, size):
    """An argument for twice the samples; one that holds no tensors stays."""
    if isinstance(argument, (torch.Tensor, list, tuple, dict)):
        made = doubled(argument, size)
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
