"""The module that a loop calls: timed with the inputs of many calls in turn, and with all of them in one."""

from typing import Any

import torch
from torch.nn.modules import module as torch_modules

from ..kept_batches import NotDoubled, copied
from ..module_passes import ModulePasses, kept_arguments, same_random_numbers, transformed
from ..recorder import now, quietly

MOST_MODULES = 4096
MOST_TAKEN = 4  # graphs, each with the calls before it; a few more than are read
MOST_CALLS = 32
MOST_INPUTS = 256  # of a module, whose nodes in the graph are noted
MOST_ELEMENTS = 1 << 22  # of their inputs
ROUNDS, LEAST_ROUNDS = 5, 2
BUDGET_NS, MOST_FIRST_NS = 400_000_000, 1_000_000_000


class ModuleCalls:
    """The modules that were called with gradients since the last backward pass, with the first input of each."""

    def __init__(self):
        self._calls: Any = {}  # id of a module -> [it, calls, arguments, nodes of inputs], the outer ones first
        self._hook: Any = None
        self._taken = 0

    def watch(self):
        """Count the calls that follow; returns what ends that."""
        self._hook = torch_modules.register_module_forward_pre_hook(self._begins)
        return self.unwatch

    def unwatch(self):
        """Count no more."""
        hook, self._hook = self._hook, None
        self._calls = {}
        if hook is not None:
            hook.remove()

    @quietly
    def _begins(self, module, args):
        if not torch.is_grad_enabled() or transformed():
            return
        found = self._calls.get(id(module))
        if found is not None:
            found[1] += 1
        elif len(self._calls) < MOST_MODULES:
            found = self._calls[id(module)] = [module, 1, kept_arguments(args), []]
        if found is not None and len(found[3]) < MOST_INPUTS:
            # By number: whoever holds a node holds its graph in memory.
            found[3] += [number(one.grad_fn) for one in args if isinstance(one, torch.Tensor) and one.grad_fn]

    def take(self):
        """The calls until now, [module, calls, arguments, nodes of inputs] each; they are forgotten."""
        calls, self._calls = list(self._calls.values()), {}
        self._taken += 1
        if self._taken >= MOST_TAKEN:
            self.unwatch()
        return calls


def around(weight, least, calls):
    """The outermost of the modules with this weight that were called at least so often, as ``take`` gives it."""
    for found in calls:
        if found[1] >= least and any(parameter is weight for parameter in found[0].parameters()):
            return found
    return None


def recurrent_weights(calls, least):
    """Weights of recurrent layers, such as nn.GRU, that were called fewer than ``least`` times.

    Args:
        calls: as ``take`` gives them.
        least: of calls, that leave a layer out.
    """
    layers = (found[0] for found in calls if found[1] < least and isinstance(found[0], torch.nn.RNNBase))
    return [parameter for layer in layers for parameter in layer.parameters()]


def number(node):
    """What tells a node of a graph from others, in the thread that made it; None before torch 2.1 has it."""
    return node._sequence_nr() if hasattr(node, "_sequence_nr") else None


def timed(module, count, args):
    """Seconds of the passes of one call, of up to MOST_CALLS in turn and of one with all their inputs; or why not.

    Args:
        module: of the training.
        count: its calls in a step.
        args: of one of them. A single vector stands for a batch of one.
    """
    try:
        args = tuple(copied(one) for one in args)  # a pass may change them
        if all(one.dim() == 1 for one in args if isinstance(one, torch.Tensor)):
            batch = tuple(one[None] if isinstance(one, torch.Tensor) else one for one in args)
        else:
            batch = args
        passes = ModulePasses(module, batch)
        elements = max(sum(one.numel() for one in args if isinstance(one, torch.Tensor)), 1)
        most = min(count, MOST_CALLS, MOST_ELEMENTS // elements)
        if most < 2:
            return {"skipped": "its input is large"}
        times = 1 << (most.bit_length() - 1)
        apart, joined = [args] * times, [passes.joined(times)]
        found: Any = ([], [])
        begun_ns = now()
        with same_random_numbers():
            for number in range(ROUNDS + 1):
                pair = passes.take_ns(apart), passes.take_ns(joined)
                if number:  # memory is reserved in the first
                    for kept, taken_ns in zip(found, pair):
                        kept.append(taken_ns)
                spent_ns = now() - begun_ns
                if spent_ns > (BUDGET_NS if number >= LEAST_ROUNDS else MOST_FIRST_NS):
                    break
    except NotDoubled as error:
        return {"skipped": str(error)}
    except Exception as error:
        return {"skipped": "it raised %s: %s" % (type(error).__name__, str(error)[:200])}
    if len(found[0]) < LEAST_ROUNDS:
        return {"skipped": "its calls take long"}
    return {"calls": times, "apart_ns": found[0], "joined_ns": found[1]}
