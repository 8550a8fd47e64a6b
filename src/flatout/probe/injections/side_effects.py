"""What a call leaves behind that a training could depend on: tensors, arrays, gradients, random numbers."""

import collections.abc
import itertools
import random
import sys
from typing import Any

import torch

from ..collected_objects import collected_objects
from .object_state import attributes_of, is_of_the_users
from .reached_code import ReachedCode

FEW = 1024  # elements: statistics for a report, not weights
_LOOKED_AT = 8  # elements of a tensor or an array that are compared
_MOST_HELD = 1024  # parts of a container
_COPIED = 1 << 16
_KINDS = (torch.Tensor, torch.nn.Parameter, torch.optim.Optimizer, torch.utils.data.DataLoader, torch.nn.Module)
# Methods that change a model or an optimizer, besides those in place, whose names end in "_"; and what is assigned to.
_LEARNS = {"step", "backward", "zero_grad", "load_state_dict"}
_STORED = {"requires_grad", "grad", "data", "lr"}
_MOST_DRAWS = 4  # numbers drawn at random; each new iterator of a DataLoader draws one


class SideEffects:
    """The tensors that there are before a call, and the arrays that it can reach.

    Args:
        function: that is called.
        args: by position, the object whose method it is among them.
        kwargs: by name.
    """

    def __init__(self, function, args, kwargs):
        self._reached = (args, kwargs, *surroundings(function))
        self._arrays = _arrays(self._reached)
        tracked = _Tracked()
        self._parameters, self._optimizers, self._loaders = tracked.parameters, tracked.optimizers, tracked.loaders
        self._gradients = [parameter.grad for parameter in self._parameters]  # objects from here on, as the others are
        self._learning = self._state_of_learning()
        self._before = {id(tensor): tensor for tensor in (*tracked.tensors, *self._gradients) if tensor is not None}
        kept = tracked.buffers
        self._seen = [
            (tensor, _version(tensor), _looked_at(tensor))
            for key, tensor in self._before.items()
            if tensor.numel() > FEW or isinstance(tensor, torch.nn.Parameter) or key in kept
        ]

    def found(self, result):
        """What the call did that a training could depend on, as text; None: nothing."""
        returned = list(_inside(result))
        if any(tensor.requires_grad for tensor in returned):
            return "its result is differentiated"
        if isinstance(result, collections.abc.Iterator):
            return "it returns an iterator"
        if hasattr(type(result), "__enter__") and not isinstance(result, torch.Tensor):
            return "it returns a context manager"
        if _arrays(self._reached) != self._arrays:
            return "it changes arrays"
        known = {*map(id, returned), *self._before}
        if sum(tensor.numel() for tensor in _Tracked().tensors if id(tensor) not in known) > FEW:
            return "it keeps tensors"
        if any(
            version != _version(tensor) or looked_at != _looked_at(tensor) for tensor, version, looked_at in self._seen
        ):
            return "it changes tensors"
        if self._learning != self._state_of_learning():
            return "it changes gradients, the optimizer, or a random generator"
        self._before, self._seen, self._reached = {}, [], ()
        self._parameters = self._optimizers = self._loaders = self._gradients = []
        return None

    def _state_of_learning(self):
        """Gradients, which parameters have them, and what optimizers do."""
        found: Any = []
        for parameter in self._parameters:
            grad = parameter.grad
            found.append((parameter.requires_grad, None if grad is None else (grad._version, _looked_at(grad))))
        for loader in self._loaders:
            generator = loader.generator
            found.append(None if generator is None else generator.get_state().tolist())
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                found.append([repr(value) for name, value in sorted(group.items()) if name != "params"])
        return found


class _Tracked:
    """The objects of torch's that Python's garbage collector knows, found in one pass over all.

    Attributes:
        tensors, parameters, optimizers, loaders: of each kind, subclasses included.
        buffers: the ids of all buffers of modules.
    """

    def __init__(self):
        objects = collected_objects()
        # Not isinstance(): it asks objects for __class__, and some answer with code of their own.
        types = list(map(type, objects))
        kinds = {kind for kind in set(types) if issubclass(kind, _KINDS)}
        ours = [one for one, kind in zip(objects, types) if kind in kinds]
        self.tensors, self.parameters, self.optimizers, self.loaders, modules = (
            [one for one in ours if issubclass(type(one), kind)] for kind in _KINDS
        )
        self.buffers = {id(one) for module in modules for one in module.__dict__.get("_buffers", {}).values()}


def _version(tensor):
    try:
        return tensor._version
    except RuntimeError:  # an inference tensor has none
        return 0


def _looked_at(tensor):
    """Some elements: what ``tensor.data`` changes has the same version."""
    try:
        with torch.no_grad():
            flat = tensor.detach()
            # Copied to lie in a row, a large one would take long.
            flat = (
                flat.reshape(-1) if flat.is_contiguous() or flat.numel() <= _COPIED else flat[(0,) * (flat.dim() - 1)]
            )
            return repr(flat[:: flat.numel() // _LOOKED_AT + 1].tolist())
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, or without data
        return None


def surroundings(function):
    """Values of the globals that a function's code names, and of its closure."""
    found = [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # it is empty yet
            continue
    return found


def _arrays(values, deepest=4):
    """A mark of each large array of NumPy's in values, in containers and in attributes of the user's objects."""
    numpy: Any = sys.modules.get("numpy")
    found: Any = []
    pending = [(values, deepest)] if numpy is not None else []
    seen = set()
    while pending:
        value, left = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, numpy.ndarray):
            if value.size > FEW and not value.dtype.hasobject:
                found.append((id(value), value.shape, value.flat[:: value.size // _LOOKED_AT + 1].tobytes()))
        elif left and isinstance(value, dict):
            pending += [(one, left - 1) for one in itertools.islice(list(value.values()), _MOST_HELD)]
        elif left and isinstance(value, (list, tuple)):
            pending += [(one, left - 1) for one in value[:_MOST_HELD]]
        elif left and is_of_the_users(type(value)) and not isinstance(value, type):
            pending += [(one, left - 1) for one in attributes_of(value).values()]
    return sorted(found)


def _inside(value, deepest=4):
    if isinstance(value, torch.Tensor):
        yield value
    elif deepest and isinstance(value, collections.abc.Mapping):
        for one in value.values():
            yield from _inside(one, deepest - 1)
    elif deepest and isinstance(value, (list, tuple, set)):
        for one in value:
            yield from _inside(one, deepest - 1)


def changes_learning(function, owner):
    """What of a training the user's code of a function changes, by the names in it, as text; None: nothing is seen.

    Args:
        function: that is called, with all of the user's that it reaches.
        owner: class of the object whose method it is; None: it is no method.
    """
    reached = ReachedCode(function, owner)
    called = reached.methods | reached.loaded
    found = sorted(name for name in called if name in _LEARNS or (name[-1:] == "_" and name[:1] != "_"))
    if found:
        return "it calls %s()" % found[0]
    stored = sorted(reached.stores & _STORED)
    return "it assigns to %s" % stored[0] if stored else None


class Draws:
    """The random numbers that a call draws.

    Attributes:
        count: of torch's, once the call has ended.
    """

    def __init__(self):
        self._torch, self._others = torch.random.get_rng_state(), other_generators()
        self.count = 0

    def finish(self):
        """Count them, after the call; returns why they could not be drawn without it, or None."""
        after = torch.random.get_rng_state()
        if other_generators() != self._others:
            return "it draws random numbers of Python or NumPy"
        if not torch.equal(after, self._torch):
            generator = torch.Generator()
            generator.set_state(self._torch)
            while not torch.equal(generator.get_state(), after):
                if self.count == _MOST_DRAWS:
                    return "it draws random numbers"
                self.count += 1
                _draw(generator)
        self._torch = self._others = None
        return None

    def again(self):
        """Draw as many from torch's generator, so that later numbers stay what they are."""
        for _ in range(self.count):
            _draw(None)


def _draw(generator):
    torch.empty((), dtype=torch.int64).random_(generator=generator)


def other_generators():
    """The states of Python's generator and NumPy's, comparable."""
    numpy = sys.modules.get("numpy")
    found = numpy.random.get_state(legacy=False) if numpy is not None else None
    # A draw moves the position, fills the key anew, or takes the second of two normal numbers.
    told = found and (found["state"]["pos"], found["state"]["key"][:8].tolist(), found["has_gauss"])
    return random.getstate(), told
