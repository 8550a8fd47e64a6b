"""Backward passes compute only gradients that something uses, as far as the first steps show.

A parameter that no optimizer has, and that no code changes, needs no gradient, unless other code reads it: a norm over
all gradients, or an optimizer that takes over what was summed up. Where that happens it is noticed, and all are
computed from then on. Each graph is walked before its backward pass, so that tensors which later steps bring are
computed as before.
"""

import functools
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..inspection import backward_graph
from ..inspection.gradients import UnusedGradients
from .clipping import before_clipping
from .unread_gradients import UnreadGradient, plain, unread

SETTING = "used_gradients"
LOOKED_AT = 3  # steps after the first: the gradients of each are seen, and the parameters stay the same


def install(injected, watch):
    """Begin to look when an optimizer steps for the first time: all are there by then."""
    if injected.get(SETTING):
        _Steps(injected)


class _Steps:
    def __init__(self, injected):
        self._injected = injected
        self._count = 0
        self._found: Any = None
        self._end_watch: Any = None
        self._unused: Any = {}  # id -> parameter
        self._zeros: Any = {}
        self._taken: Any = []  # parameters that an optimizer has now
        self._handle = register_optimizer_step_post_hook(self._stepped)
        before_clipping(self._clipped, "clip_grad_norm_")

    def _stepped(self, *_):
        self._count += 1
        if self._count > 1 + LOOKED_AT:
            return
        if self._count == 1:
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                self._give_up("other processes wait for the gradients")
                return
            self._found = UnusedGradients()
            self._end_watch = self._found.watch()
        elif self._count == 1 + LOOKED_AT:
            self._decide()

    def _decide(self):
        found = self._found
        self._end_watch()
        found.stop_watching()
        if found.kept_because:
            self._give_up(found.kept_because)
        elif not found.parameters:
            self._give_up("optimizers use all gradients")
        else:
            self._unused = {id(parameter): parameter for parameter in found.parameters}
            self._leave_out()
            self._injected.done(SETTING)
        self._found = self._end_watch = None

    def _give_up(self, why):
        self._handle.remove()
        if self._end_watch is not None:
            self._end_watch()
        self._found = self._end_watch = None
        for parameter in self._unused.values():
            if type(parameter.grad) is UnreadGradient:
                parameter.grad = plain(parameter.grad)
        self._unused = {}
        self._injected.applied.pop(SETTING, None)  # a trial with it does not count
        self._injected.refuse(SETTING, why)

    def _leave_out(self):
        original, added = torch.autograd.backward, Optimizer.add_param_group
        for parameter in self._unused.values():
            if parameter.grad is not None:
                parameter.grad = unread(parameter.grad, self._noticed)

        @functools.wraps(original)
        def backward(
            tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None
        ):
            if self._taken:
                self._hand_over()
            if self._unused and inputs is None and not create_graph:
                inputs = self._used(tensors)
            original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            self._fill()

        @functools.wraps(added)
        def add_param_group(optimizer, param_group):
            added(optimizer, param_group)
            for parameter in optimizer.param_groups[-1]["params"]:
                if self._unused.pop(id(parameter), None) is not None:
                    self._taken.append(parameter)

        torch.autograd.backward = backward
        setattr(Optimizer, "add_param_group", add_param_group)  # noqa: B010

    def _hand_over(self):
        """Before the first backward pass that computes gradients for an optimizer that was added."""
        taken, self._taken = self._taken, []
        for parameter in taken:
            gradient = parameter.grad
            if type(gradient) is UnreadGradient:
                parameter.grad = plain(gradient)
                if not gradient.zeroed:
                    self._give_up("an optimizer takes over gradients that were left out")

    def _noticed(self):
        if not self._unused:
            return  # code that keeps one reads it again
        self._give_up(
            "other code reads the gradients that were left out since step %d: what it read until step %d, and what it "
            "sums up without setting it to zero, differs from a training without the setting"
            % (LOOKED_AT + 2, self._count + 1)
        )

    def _used(self, tensors):
        """The leaves of a graph that something uses; None: all of them."""
        try:
            leaves = backward_graph.leaves(backward_graph.nodes(tensors))
        except Exception:  # a node of some extension, or too many
            return None
        used = [leaf for leaf in leaves if id(leaf) not in self._unused]
        return used if used and len(used) < len(leaves) else None

    def _fill(self):
        """A script that adds up the norms of all gradients finds one here, as before."""
        for key, parameter in self._unused.items():
            if parameter.grad is None and parameter.requires_grad:
                if key not in self._zeros:
                    self._zeros[key] = unread(torch.zeros_like(parameter), self._noticed)
                parameter.grad = self._zeros[key]
            elif parameter.grad is not None and type(parameter.grad) is not UnreadGradient:  # it was moved
                parameter.grad = unread(parameter.grad, self._noticed)

    def _clipped(self):
        """A norm over gradients that are left out would be another one."""
        if self._found is not None or self._unused:
            self._give_up("gradients are clipped by their norm, which may contain the unused ones")
