"""The graphs of a few backward passes: gradients that no optimizer uses, and passes that leave them out.

A parameter's gradient is unused if backward passes compute it, the parameter is in no optimizer, nobody has a hook on
it, and its value stays the same: some optimizers update copies of the weights, and write these back.
"""

import functools
from typing import Any

import torch

from .. import live_objects
from ..recorder import REC
from . import backward_graph

LEAST_PASSES = 2  # one backward pass may be the first of a step that has another loss
MOST_NAMES = 8


class UnusedGradients:
    """The unused gradients of a training.

    Args:
        weights: looks at the same graphs; None: nothing else does.

    Attributes:
        parameters: those with such gradients, once ``decided``.
        decided: ``stop_watching`` was called.
        shapes: of all results in the graphs since the last ``take_shapes``, but for those that only go into packed
            rows; None: they are not known.
        packed: rows were packed.
        kept_because: why no backward pass can be asked to leave them out; None: one can.
    """

    def __init__(self, weights=None):
        self._weights = weights
        self.parameters: Any = []
        self.decided = False
        self.shapes: Any = None
        self.packed = False
        self.kept_because: Any = None
        self._known, optimized = _parameters()
        self._sizes: Any = {}  # id of each parameter with a gradient -> its elements
        self._walks, self._failed = 0, False
        self._passes: Any = {}  # id of each suspect -> backward passes that computed its gradient
        self._sums: Any = {}  # id of each suspect -> (parameter, sum of its values)
        self._restore: Any = None
        updated = {key for key in optimized if key in self._known}
        # Of a weight in 16 bits an optimizer may have a copy in 32, and change it by too little to be seen.
        copied = {tensor.shape for key, tensor in optimized.items() if key not in updated}
        # Where no optimizer has a module's parameter, other code updates them all.
        for key, parameter in self._known.items() if updated else ():
            if key not in updated and parameter.shape not in copied and not hooked(parameter):
                total = sum_of(parameter)
                if total is not None:
                    self._sums[key] = parameter, total
        self._known.update(optimized)

    def watch(self):
        """Look at the graph of each backward pass before it runs; returns what ends that."""
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors, *args, **kwargs):
            wanted = self._walks < LEAST_PASSES or self._sums
            if wanted and not self._failed and not kwargs.get("inputs") and len(args) < 5:
                self._look(tensors)
            return original(tensors, *args, **kwargs)

        self._restore = replace_backward(backward)
        return self._end_watch

    def _end_watch(self):
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()

    def _look(self, tensors):
        self._walks += 1
        shapes: Any = set()
        try:
            nodes = backward_graph.nodes(tensors)
            before = backward_graph.behind(nodes, "PackPaddedSequence")
            self.packed = self.packed or bool(before)
            for node in nodes:
                results: Any = getattr(node, "_input_metadata", ())  # newer than 2.1
                if id(node) not in before:
                    shapes.update(tuple(result.shape) for result in results)
                if type(node).__name__ != "AccumulateGrad":
                    continue
                leaf = node.variable
                key = id(leaf)
                self._sizes[key] = leaf.numel()
                if key in self._sums:
                    self._passes[key] = self._passes.get(key, 0) + 1
                elif key not in self._known:
                    self.kept_because = "backward passes compute gradients of other tensors than parameters"
            self.shapes = shapes | (self.shapes or set()) or None
            if self._weights is not None:
                self._weights.look(nodes)
        except Exception as error:  # a node of some extension
            self.kept_because = "the graph of a backward pass could not be read (%s)" % type(error).__name__
            self._sums.clear()
            self.shapes, self._failed = None, True

    def take_shapes(self):
        """``shapes``, which are forgotten."""
        shapes, self.shapes = self.shapes, None
        return shapes

    def stop_watching(self):
        """Decide which gradients are unused."""
        self._end_watch()
        self.decided = True
        self.parameters = [
            parameter
            for key, (parameter, total) in self._sums.items()
            if self._passes.get(key, 0) >= LEAST_PASSES and not hooked(parameter) and sum_of(parameter) == total
        ]
        if REC.names is not None and REC.names.has_text("clip_grad_norm_"):
            self.kept_because = "gradients are clipped by their norm, which may contain the unused ones"

    def described(self):
        """What the record says: elements with an unused gradient and with any, and the modules that have them."""
        self.parameters = [found for found in self.parameters if sum_of(found) == self._sums[id(found)][1]]
        return {
            "elements": sum(parameter.numel() for parameter in self.parameters),
            "of": sum(self._sizes.values()),
            "modules": names_of({id(parameter) for parameter in self.parameters}) if self.parameters else [],
            "not_tried": self.kept_because,
        }

    def leave_out(self):
        """Make backward passes compute the other gradients only; returns what undoes it."""
        unused = {id(parameter) for parameter in self.parameters}
        found, optimized = _parameters()  # a new epoch may train a new model
        found.update(optimized)
        others = [parameter for key, parameter in found.items() if key not in unused]
        original = torch.autograd.backward
        zeros: Any = {}

        @functools.wraps(original)
        def backward(
            tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None
        ):
            if inputs is None and not create_graph:
                inputs = [parameter for parameter in others if parameter.requires_grad] or None
            original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            # A script that sums up the norms of all gradients expects one here, as before.
            for parameter in self.parameters:
                if parameter.grad is None and parameter.requires_grad:
                    kept = zeros.get(id(parameter))
                    if kept is None:
                        kept = zeros[id(parameter)] = torch.zeros_like(parameter)
                    parameter.grad = kept

        return replace_backward(backward)


def replace_backward(function):
    """Put a function in the place of ``torch.autograd.backward``; returns what undoes it.

    ``Tensor.backward`` and the gradient scalers call it by this name.
    """
    original = torch.autograd.backward
    torch.autograd.backward = function

    def restore():
        if torch.autograd.backward is function:
            torch.autograd.backward = original

    return restore


def _parameters():
    """The parameters of all modules that require gradients, and all that optimizers update; both by their ids."""
    of_modules: Any = {}
    optimized: Any = {}
    for optimizer in live_objects.optimizers():
        groups = vars(optimizer).get("param_groups") or ()
        optimized.update((id(tensor), tensor) for group in groups for tensor in group["params"])
    for module in live_objects.modules():
        for parameter in (vars(module).get("_parameters") or {}).values():
            if parameter is not None and parameter.requires_grad and parameter.is_leaf:
                of_modules[id(parameter)] = parameter
    return of_modules, {key: tensor for key, tensor in optimized.items() if tensor.requires_grad and tensor.is_leaf}


def hooked(parameter):
    """True if somebody looks at the gradient of a parameter as it is computed."""
    return any(getattr(parameter, name, None) for name in ("_backward_hooks", "_post_accumulate_grad_hooks"))


def sum_of(parameter):
    """The sum of all values of a tensor, which shows also what is written through ``data``; None: it has none."""
    try:
        return float(parameter.detach().sum(dtype=torch.float64))
    except Exception:
        return None


def sums_of(tensors):
    """The same of several, each device waited for once."""
    by_device: Any = {}
    for place, one in enumerate(tensors):
        by_device.setdefault(one.device, []).append(place)
    found: Any = [None] * len(tensors)
    for places in by_device.values():
        try:
            sums = torch.stack([tensors[place].detach().sum(dtype=torch.float64) for place in places]).tolist()
        except Exception:  # a kind that has none is among them
            sums = [sum_of(tensors[place]) for place in places]
        for place, one in zip(places, sums):
            found[place] = one
    return found


def names_of(ids):
    """The largest modules all of whose trained parameters have these ids, by class and path."""
    names: Any = {}
    for root in live_objects.outermost():
        _name(root, type(root).__name__, ids, names)
    return list(names)[:MOST_NAMES]


def _name(module, path, unused, names):
    owned = [id(parameter) for parameter in torch.nn.Module.parameters(module) if parameter.requires_grad]
    if unused.isdisjoint(owned):
        return
    if unused.issuperset(owned):
        names[path] = None
        return
    for name, parameter in (vars(module).get("_parameters") or {}).items():
        if id(parameter) in unused:
            names["%s.%s" % (path, name)] = None
    for name, part in module.named_children():
        _name(part, "%s.%s" % (path, name), unused, names)
