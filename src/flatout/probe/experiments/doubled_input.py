"""The model alone, on an input of the training and on that input joined to itself: what of its passes grows with it.

For trainings whose batches no DataLoader gives; of others, whole steps are measured. The passes run between two steps,
after the window; gradients, buffers and random numbers are as before afterwards.
"""

from typing import Any

import torch
from torch.nn.modules import module as torch_modules

from ..kept_batches import NotDoubled
from ..module_passes import ModulePasses, kept_arguments, same_random_numbers, transformed
from ..recorder import now, quietly

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
        if self._inside is None and torch.is_grad_enabled() and not transformed():
            self._inside = module
            learns = next(torch.nn.Module.parameters(module), None) is not None  # a module may have a list by this name
            if module.training and len(self._calls) < MOST_MODELS and learns:
                self._calls[id(module)] = module, kept_arguments(args)

    def _ends(self, module, args, output):
        if module is self._inside:
            self._inside = None

    def measured(self):
        """For the record: samples and ns of the passes with them and with twice as many; or why there are none."""
        calls, self._calls = list(self._calls.values()), {}
        if not calls:
            return {"skipped": "no model was called with gradients"}
        try:
            passes = [ModulePasses(module, args) for module, args in calls]
            inputs = [([args], [one.joined(2)]) for one, (_, args) in zip(passes, calls)]
            single_ns, doubled_ns = [], []
            begun_ns = now()
            with same_random_numbers():
                for number in range(ROUNDS + 1):
                    pair = [sum(one.take_ns(given[twice]) for one, given in zip(passes, inputs)) for twice in (0, 1)]
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
