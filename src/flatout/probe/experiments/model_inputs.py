"""What the models of a training are called with, in steps after the window."""

from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as torch_modules

from ..module_passes import kept_arguments, transformed
from ..recorder import quietly

MOST_MODELS = 4


class ModelCall(NamedTuple):
    """A model that learns, and the arguments of its first call.

    Attributes:
        module: the model.
        args: without names.
        named: names of others.
    """

    module: Any
    args: Any
    named: Any


class ModelInputs:
    """Notes the calls of models between ``watch`` and what it returns.

    Attributes:
        lacking: why there are none, if there are none.
    """

    def __init__(self):
        self.lacking = "no model was called with gradients"
        self._calls: Any = {}  # id of a module -> its first call
        self._counts: Any = {}  # the same -> calls with arguments of the same sizes
        self._inside: Any = None  # the outermost module that runs, and its arguments
        self._hooks: Any = []
        self._steps = 0

    def watch(self):
        """Note the input of each model in the steps that follow; returns what ends that."""
        try:
            after = torch_modules.register_module_forward_hook(self._ends, with_kwargs=True)
        except TypeError:
            self.lacking = "this torch does not tell which arguments models are given by name"
            return self.unwatch
        self._hooks = [torch_modules.register_module_forward_pre_hook(self._begins), after]
        return self.unwatch

    def unwatch(self):
        """Note no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def step_ended(self):
        """A step has ended."""
        self._steps += 1
        self._inside = None  # a call that raised has no end

    @quietly
    def _begins(self, module, args):
        if self._inside is None and torch.is_grad_enabled() and not transformed():
            self._inside = module, kept_arguments(args)

    @quietly
    def _ends(self, module, args, named, output):
        if self._inside is None or module is not self._inside[0]:
            return
        args, self._inside = self._inside[1], None
        learns = next(torch.nn.Module.parameters(module), None) is not None  # a module may have a list by this name
        if not module.training or not learns:
            return
        if id(module) not in self._calls and len(self._calls) < MOST_MODELS:
            self._calls[id(module)] = ModelCall(module, args, tuple(named))
        first = self._calls.get(id(module))
        if first is not None and _sizes(args) == _sizes(first.args):
            self._counts[id(module)] = self._counts.get(id(module), 0) + 1

    def taken(self):
        """Calls of models, and how often each was called so in a step; nothing of them is held any more."""
        found = [
            (call, max(round(self._counts[id(call.module)] / max(self._steps, 1)), 1)) for call in self._calls.values()
        ]
        self._calls, self._counts, self._inside = {}, {}, None
        return found


def _sizes(args):
    return [tuple(one.shape) for one in args if isinstance(one, torch.Tensor)]
