"""Recurrent layers that are called for one time step after the other, though their inputs are known beforehand.

A layer of torch's takes a whole sequence in one call, and hands its state on inside. A loop that hands it on in Python
calls the layer, and all that surrounds it, once for each time step. Where an input is made of what the layer gave
before, as in attention or in a decoder that reads its own output, the loop is needed.
"""

import copy
import functools
import os
import sys
from typing import Any

import torch
from torch.nn.modules import module as torch_modules

from .. import memory_room
from ..module_passes import is_hooked, same_random_numbers, tensors_in, transformed
from ..recorder import REC, quietly
from ..sites import PROBE_FOLDER
from . import both_ways
from .gradients import names_of

LEAST_CALLS = 8  # in a step
_MOST_LAYERS = 8
_MOST_TIMED = 64  # calls
_LEAST_CHAINED = 0.5  # of the calls: the others begin with a state of their own
_IN_PLACE = "_"  # ends the names of operators that write into what they are given
_READS = "_local_scalar_dense"  # what .item() calls
_TAKE_OUT = ("numpy", "tolist", "__array__", "__dlpack__")  # no operators: what follows is not seen
_CHECKS = os.path.join("torch", "distributions", "")
# Between an operator of torch's and the code that calls it.
_PASSED = (PROBE_FOLDER, os.path.join("torch", "_dynamo", ""), os.path.join("torch", "_compile.py"))


class _Layer:
    """A layer that was called in this step.

    Attributes:
        module: it.
        calls: with one time step each, and gradients.
        chained: those of them whose state is what the one before gave, as it gave it.
        fed: those of them whose input was made of what it gave before. A layer that feeds another one is no loop.
        args: of its first call.
        bit: that stands for it.
        read: numbers that Python may have used since its latest call were made of what it gave.
        gave: addresses of what its latest call gave, without those that were written to since then.
    """

    def __init__(self, module, args, bit):
        self.module, self.args, self.bit, self.read = module, args, bit, False
        self.gave: Any = set()
        self.calls = self.chained = self.fed = 0


class StepwiseLayers:
    """Follows what such layers give through the operators of a step.

    Whatever an operator makes of it is known by its memory, so that a value that is detached, or written into another
    tensor, is followed as well.

    Args:
        watched: returns False once operators are no longer looked at, as in a step that is too long.
    """

    def __init__(self, watched):
        self._watched = watched
        self._layers: Any = {}  # id of a module -> it
        self._given: Any = {}  # address of memory -> bits of the layers that it depends on
        self._unseen: Any = {}  # kind of layer -> calls after the operators were no longer looked at
        self._hooks: Any = []

    def begin(self):
        """A step begins."""
        self._layers, self._given, self._unseen = {}, {}, {}
        if not self._hooks:
            self._hooks = [
                torch_modules.register_module_forward_pre_hook(self._called).remove,
                torch_modules.register_module_forward_hook(self._gave).remove,
                *(_watched_method(name, self._taken_out) for name in _TAKE_OUT),
            ]

    def end(self, whole):
        """A step has ended, perhaps before its end was seen; the record gets what ``whole`` ones showed."""
        for undo in self._hooks:
            undo()
        self._hooks = []
        layers, self._layers, self._given = list(self._layers.values()), {}, {}
        if whole:
            found = [_told(layer) for layer in layers if _needless(layer)]
            for kind, calls in self._unseen.items() if not layers else ():
                if calls >= LEAST_CALLS:
                    found.append({"kind": kind, "calls": calls, "skipped": "a step has too many operators before it"})
            if found:
                REC.save_process(stepwise_layers=found)

    def look(self, name, args, result):
        """Look at an operator that has run, and was no part of a backward pass."""
        if not self._layers:
            return
        bits = self._bits(args)
        if bits and name == _READS and not _in_check():
            self._read(bits)
        made = _addresses(result)
        for address in made:
            if bits:
                self._given[address] = bits
            else:
                self._given.pop(address, None)  # memory that was freed, and taken anew
        if name.endswith(_IN_PLACE):
            for layer in self._layers.values():
                layer.gave -= made

    @quietly
    def _taken_out(self, tensor):
        self._read(self._bits(tensor))

    def _read(self, bits):
        for layer in self._layers.values():
            layer.read = layer.read or bool(layer.bit & bits)

    def _bits(self, values):
        bits = 0
        for address in _addresses(values) if self._given else ():
            bits |= self._given.get(address, 0)
        return bits

    @quietly
    def _called(self, module, args):
        if not isinstance(module, (torch.nn.RNNBase, torch.nn.RNNCellBase)) or not _one_step(module, args):
            return
        if not self._watched():
            self._unseen[type(module).__name__] = self._unseen.get(type(module).__name__, 0) + 1
            return
        found = self._layers.get(id(module))
        if found is None:
            if len(self._layers) >= _MOST_LAYERS:
                return
            found = self._layers[id(module)] = _Layer(module, _detached(args), 1 << len(self._layers))
        found.calls += 1
        # By an operator, or perhaps by way of Python, from a number that was read since the layer's last call.
        found.fed += bool(self._bits(args[:1]) & found.bit) or found.read
        found.read = False
        state = _addresses(args[1:])
        found.chained += bool(state) and state <= found.gave

    @quietly
    def _gave(self, module, args, output):
        found = self._layers.get(id(module))
        if found is None:
            return
        found.gave = _addresses(output)
        for address in found.gave:
            self._given[address] = self._given.get(address, 0) | found.bit


def _watched_method(name, seen):
    """Have ``seen(tensor)`` called before a method of tensors; returns what ends that."""
    own = name in vars(torch.Tensor)
    original = getattr(torch.Tensor, name)

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        if not sys._getframe(1).f_code.co_filename.startswith(_PASSED[0]):  # flatout looks at values, too
            seen(self)
        return original(self, *args, **kwargs)

    setattr(torch.Tensor, name, method)
    return (lambda: setattr(torch.Tensor, name, original)) if own else (lambda: delattr(torch.Tensor, name))


def _in_check():
    """True if torch.distributions reads whether its parameters are valid."""
    frame: Any = sys._getframe(2)
    while frame is not None and any(part in frame.f_code.co_filename for part in _PASSED):
        frame = frame.f_back
    return frame is not None and _CHECKS in frame.f_code.co_filename


def _addresses(values):
    """Of the memory of all tensors in them; a sparse one has none of its own."""
    strided = [one for one in tensors_in(values) if one.layout is torch.strided and one.numel()]
    return {one.untyped_storage().data_ptr() for one in strided}


def _detached(values):
    if isinstance(values, torch.Tensor):
        return values.detach().requires_grad_(values.requires_grad)
    return tuple(map(_detached, values)) if isinstance(values, (tuple, list)) else values


def _one_step(module, args):
    if not args or not isinstance(args[0], torch.Tensor) or not torch.is_grad_enabled() or transformed():
        return False
    if isinstance(module, torch.nn.RNNCellBase):
        return True
    if module.bidirectional or args[0].dim() not in (2, 3):
        return False
    return args[0].shape[_time(module, args[0])] == 1


def _time(module, values):
    """The dimension of time."""
    return 1 if module.batch_first and values.dim() == 3 else 0


def _needless(layer):
    return layer.calls >= LEAST_CALLS and not layer.fed and layer.chained >= _LEAST_CHAINED * layer.calls


def _told(layer):
    """What the record says of a layer: its calls, and both passes of some of them in turn and of one call."""
    weights = {id(one) for one in layer.module.parameters()}
    found: Any = {
        "name": "".join(names_of(weights)[:1]),
        "kind": type(layer.module).__name__,
        "calls": layer.calls,
        "chained": layer.chained,
    }
    lacking = memory_room.lacking()
    if lacking is None and any(is_hooked(part) for part in layer.module.modules()):
        lacking = "hooks on it would see the calls"
    try:
        return {**found, **({"skipped": lacking} if lacking else _timed(layer))}
    except Exception as error:
        return {**found, "skipped": "it raised %s: %s" % (type(error).__name__, str(error)[:200])}


def _timed(layer):
    with same_random_numbers():  # weights of a new layer are drawn
        return _timed_passes(layer)


def _timed_passes(layer):
    times = min(layer.calls, _MOST_TIMED)
    module, args = copy.deepcopy(layer.module), layer.args
    whole = _whole(module)
    time = 0 if whole is not module else _time(module, args[0])
    inputs = args[0] if whole is module else args[0][None]
    sequence = inputs.expand(*[times if place == time else -1 for place in range(inputs.dim())]).contiguous()
    state = args[1:]
    if whole is not module:
        state = tuple(
            tuple(part[None] for part in one) if isinstance(one, tuple) else one if one is None else one[None]
            for one in state
        )
    given = [one for one in tensors_in(args) if one.requires_grad]
    apart, joined = both_ways.timed(
        lambda: _in_turn(module, args, times),
        lambda: whole(sequence, *state)[0],
        [*module.parameters(), *given],
        [*whole.parameters(), *given],
    )
    return {"timed": times, "apart_ns": apart, "joined_ns": joined}


def _whole(module):
    """The layer that computes for a sequence what this one does for a time step."""
    if isinstance(module, torch.nn.RNNBase):
        return module
    kinds: Any = {torch.nn.LSTMCell: torch.nn.LSTM, torch.nn.GRUCell: torch.nn.GRU, torch.nn.RNNCell: torch.nn.RNN}
    kind = next(made for cell, made in kinds.items() if isinstance(module, cell))
    more = {"nonlinearity": module.nonlinearity} if kind is torch.nn.RNN else {}
    weight = module.weight_hh
    made = kind(module.input_size, module.hidden_size, bias=module.bias, **more)
    return made.to(device=weight.device, dtype=weight.dtype)


def _in_turn(module, args, times):
    outputs = []
    step, *state = args
    for _ in range(times):
        given = module(step, *state)
        if isinstance(module, torch.nn.RNNCellBase):  # it gives its state, and no more
            outputs.append(given[0] if isinstance(given, tuple) else given)
            state = [given]
        else:
            outputs.append(given[0])
            state = [given[1]]
    return torch.stack(outputs)
