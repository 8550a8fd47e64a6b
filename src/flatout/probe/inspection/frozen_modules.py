"""Modules of a training that do not train: what their calls take, and what these give.

Such a module gives a tensor without a gradient, and its weights stay as they are from the first step looked at to the
last one: a frozen backbone, an encoder under ``torch.no_grad()``, a teacher. Where a sample comes again in each pass,
it computes the same again.
"""

import threading
import time
from typing import Any

import torch
from torch.nn.modules import module as torch_modules

from .. import live_objects
from ..kept_batches import bytes_of
from ..module_passes import tensors_in, transformed
from ..recorder import REC, quietly
from .gradients import sums_of

MOST_MODULES = 8  # in the record
MOST_CALLS = 10_000


class FrozenModules:
    """The outermost calls of such modules in the training thread, while ``watch`` lasts."""

    def __init__(self):
        self._running: Any = []  # for each module call that runs: [module, start, calls inside that may count]
        self._calls: Any = []  # (module, start, end, bytes given, samples)
        self._known: Any = {}  # id of a module -> it, and its weights as they were at the end of its first step
        self._device = torch.cuda.is_initialized()
        self._hooks: Any = []
        self._steps = 0

    def watch(self):
        """Time the calls that follow; returns what ends that."""
        self._hooks = [
            torch_modules.register_module_forward_pre_hook(self._begins),
            torch_modules.register_module_forward_hook(self._ends, always_call=True),
        ]
        return self.unwatch

    def unwatch(self):
        """Time no more."""
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()

    def step_ended(self):
        """A step with a backward pass is over."""
        if self._hooks:
            self._steps += 1
            for module, *_ in self._calls:
                if id(module) not in self._known:
                    self._known[id(module)] = module, _weights(module)

    @quietly
    def _begins(self, module, args):
        if threading.get_ident() == REC.training_thread and not transformed() and len(self._calls) < MOST_CALLS:
            self._running.append([module, self._clock(), []])

    @quietly
    def _ends(self, module, args, result):
        if threading.get_ident() != REC.training_thread:
            return
        end = self._clock()
        while self._running:
            called, start, inside = self._running.pop()
            if called is module:
                break
        else:
            return
        if _gives_the_same(module, result):
            inside = [(module, start, end, *_sizes(result))]
        if self._running:
            self._running[-1][2] += inside
        else:
            self._calls += inside

    def _clock(self):
        if not self._device:
            return time.perf_counter_ns()
        event: Any = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def described(self):
        """What the record says; None: there are none."""
        if self._device:
            torch.cuda.synchronize()
        same = {key for key, (module, weights) in self._known.items() if _weights(module) == weights}
        spent: Any = {}
        for module, start, end, given, samples in self._calls:
            if id(module) in same:
                found = spent.setdefault(id(module), [module, 0, 0, 0, 0])
                ns = end - start if isinstance(start, int) else round(start.elapsed_time(end) * 1e6)
                for place, more in enumerate((ns, 1, given, samples), 1):
                    found[place] += more
        self._calls, self._known = [], {}
        if not spent or not self._steps:
            return None
        most = sorted(spent.values(), key=lambda one: -one[1])
        names = _names([one[0] for one in most[:MOST_MODULES]])
        return {
            "steps": self._steps,
            "ns": sum(one[1] for one in most),
            "modules": [[name, *one[1:]] for name, one in zip(names, most)],
        }


def _gives_the_same(module, result):
    """True if what it gives has no gradient, and nothing in it that would show trains, draws or counts."""
    given = tensors_in(result)
    if not given or any(one.requires_grad for one in given) or next(torch.nn.Module.parameters(module), None) is None:
        return False
    return not any(_changes(part) for part in module.modules())


def _weights(module):
    """What shows that a weight or a buffer was written to or replaced."""
    held = [*torch.nn.Module.parameters(module), *module.buffers()]
    seen = [(id(one), 0 if one.is_inference() else one._version, one.data_ptr()) for one in held]
    return seen, sums_of(held)


def _changes(part):
    """True for a layer that draws random numbers or keeps statistics in each call."""
    if not part.training:
        return False
    if isinstance(part, torch.nn.modules.dropout._DropoutNd):
        return part.p > 0
    return isinstance(part, torch.nn.modules.batchnorm._BatchNorm)


def _sizes(result):
    """Bytes and samples of what a module gives."""
    given = tensors_in(result)
    return sum(bytes_of(one) for one in given), max((len(one) for one in given if one.dim()), default=1)


def _names(wanted):
    """Each of these modules by the class of its outermost module and its path in it."""
    found: Any = {}
    for root in live_objects.outermost():
        for path, part in root.named_modules():
            found.setdefault(id(part), "%s.%s" % (type(root).__name__, path) if path else type(root).__name__)
    return [found.get(id(module), type(module).__name__) for module in wanted]
