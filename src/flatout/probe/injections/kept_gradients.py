"""Backward passes leave out gradients that are set to zero before anything uses them, as far as the first steps show.

Passes are known by the line that calls them. If a later step uses a gradient that was left out, by an optimizer or by
reading ``parameter.grad``, that is noticed: the setting is refused, and all gradients are computed from then on.
"""

import functools
import sys
import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import live_objects
from ..inspection import backward_graph, gradient_uses
from ..inspection.discarded_gradients import DiscardedGradients
from ..inspection.gradients import hooked
from ..recorder import REC

SETTING = "kept_gradients"
_GRAD: Any = torch.Tensor.grad
_uses: Any = getattr(torch._C, "_storage_Use_Count", None)  # of a storage, by its address
LOOKED_AT = 4  # steps of each optimizer after its first
MOST_LOOKED_AT = 64  # of all of them together: one may step once in an epoch, or never


def install(injected, watch):
    """Begin to look when an optimizer steps for the first time."""
    if injected.get(SETTING):
        _Steps(injected)


class _Steps:
    """The first steps of the optimizers, then the passes that leave gradients out.

    Attributes:
        pending: id of a parameter -> the line whose pass left its gradient out.
    """

    def __init__(self, injected):
        self._injected = injected
        self._steps: Any = {}  # id of an optimizer -> steps
        self._found: Any = None  # looks at the first steps
        self._end_watch: Any = None
        self._left_out: Any = {}  # file, line and function -> ids of parameters
        self._parameters: Any = []  # weak references to those
        self._alone = 0  # references to a gradient that nothing else refers to
        self.pending: Any = {}
        self._handle = register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer, *_):
        first = not self._steps
        if first:  # some may step in every fifth pass only
            self._steps = {id(one): 0 for one in live_objects.optimizers()}
        self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
        if first:
            self._begin()
        elif min(self._steps.values()) > LOOKED_AT or sum(self._steps.values()) > MOST_LOOKED_AT:
            self._decide()

    def _begin(self):
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._give_up("other processes wait for the gradients")
        elif REC.process.get("compiled"):
            self._give_up("a compiled backward pass computes all gradients")
        else:
            self._found = DiscardedGradients()
            self._end_watch = self._found.watch()
            self._injected.refuse(SETTING, "the training ended within its first steps, which are only looked at")

    def _decide(self):
        found, self._found = self._found, None
        self._handle.remove()
        self._end_watch()
        self._end_watch = None
        self._left_out = found.in_vain()
        self._parameters = [
            weakref.ref(found.parameters[key], functools.partial(self._forget, key))
            for key in set().union(*self._left_out.values())
        ]
        if found.failed:
            self._give_up(found.failed)
        elif not self._left_out:
            self._give_up("no gradient is set to zero before it is used")
        else:
            self._alone = _references_alone()
            self._end_watch = gradient_uses.watch(self)
            self._injected.refused.pop(SETTING, None)
            self._injected.done(SETTING)

    def _forget(self, key, reference):
        """A parameter is gone: another one may get its id."""
        self.pending.pop(key, None)
        for keys in self._left_out.values():
            keys.discard(key)

    def _give_up(self, why):
        self._handle.remove()
        if self._end_watch is not None:
            self._end_watch()
        self._end_watch = self._found = None
        self._left_out, self.pending = {}, {}
        self._injected.applied.pop(SETTING, None)  # a trial with it does not count
        self._injected.refuse(SETTING, why)

    def look(self, tensors):
        """A backward pass begins; returns the leaves that it is to compute, None for all of them."""
        where = gradient_uses.calling_line()
        left_out = self._left_out.get(where)
        if not left_out:
            return None
        nodes = backward_graph.nodes(tensors)
        leaves = backward_graph.leaves(nodes)
        held = _held_nodes(nodes)
        others = [leaf for leaf in leaves if id(leaf) not in left_out or id(leaf) in held or self._may_be_seen(leaf)]
        if not others or len(others) == len(leaves):
            return None
        kept = set(map(id, others))
        self.pending.update((id(leaf), where) for leaf in leaves if id(leaf) not in kept)
        return others

    def _may_be_seen(self, leaf):
        """True if other code than reads of ``leaf.grad`` may see its gradient: a hook, a view, a shared buffer."""
        if hooked(leaf):
            return True
        gradient = _GRAD.__get__(leaf)
        return gradient is not None and _references(gradient) > self._alone

    def zeroed(self, parameters):
        """Their gradients are set to zero, or replaced: what was left out is not missed."""
        for parameter in parameters:
            self.pending.pop(id(parameter), None)

    def used(self, parameters):
        """Something uses their gradients."""
        missed = next((self.pending[id(one)] for one in parameters if id(one) in self.pending), None)
        if missed is not None:
            self._give_up(
                "a gradient that was left out of the backward pass in %s:%d is used after all: from there on the "
                "training differs from one without the setting" % missed[:2]
            )

    def fault(self, error):
        """One of these failed."""
        self._give_up("the probe failed (%s)" % type(error).__name__)


def _held_nodes(nodes):
    """Ids of the leaves whose nodes other code holds, as it must to keep a hook on them alive."""
    counts = [sys.getrefcount(node) for node in nodes]
    least = min(counts)
    return {
        id(node.variable)
        for node, count in zip(nodes, counts)
        if count > least and type(node).__name__ == "AccumulateGrad"
    }


def _references(gradient):
    """References to a gradient that has one name here, and to its memory."""
    if _uses is None:
        return 1 << 30
    storage = gradient.untyped_storage()
    return sys.getrefcount(gradient) + _uses(storage._cdata)


def _references_alone():
    leaf = torch.zeros(1, requires_grad=True)
    _GRAD.__set__(leaf, torch.zeros(1))
    gradient = _GRAD.__get__(leaf)
    return _references(gradient)
