"""Layers that multiply the same input one after the other, as heads of attention in a list or gates of a cell do.

One layer with the weights of all computes the same in one call, on more columns at once. Both ways are timed, on
tensors of the same shapes.
"""

import math
from collections import Counter
from typing import Any, NamedTuple

import torch

from ..module_passes import tensors_in
from ..replacements import conv_forms
from . import both_ways
from .form_observer import FormObserver
from .repeated_rows import address

LEAST_LAYERS = 3  # of one input
_MOST_KINDS = 4  # in the record
_MOST_LINES = 3
_OPERANDS = {"mm": (0, 1, None), "addmm": (1, 2, 0), "convolution": (0, 1, 2)}  # places of input, weight and bias
_COPIES = ("_to_copy", "clone")


class _Input(NamedTuple):
    """What layers have to share, so that they can be one.

    Attributes:
        name: of the operator.
        shape: of the input.
        gradients: of the input are computed, too.
        rows: the weight has a row for each output, and not a column.
        bias: is added.
        convolution: its stride, padding, dilation and kernel; empty for a product.
    """

    name: str
    shape: Any
    dtype: Any
    device: Any
    gradients: bool
    rows: bool
    bias: bool
    convolution: Any


class UnmergedLayers(FormObserver):
    """Finds them among the operators of a step.

    Args:
        number: what tells the value of a tensor from others.
        line: file, line and function of the user's that calls the present operator, or None.
    """

    record = "unmerged_layers"

    def __init__(self, number, line):
        self._number, self._line = number, line
        super().__init__()

    def begin(self):
        self._weights: Any = {}  # number of an input, and what its layers share -> a parameter -> its shape
        self._lines: Any = {}  # the same -> where a layer is called that can be merged
        self._copies: Any = {}  # addresses of copies, as autocast makes them -> the parameter

    def look(self, name, args, result, _):
        copied = self._parameter(args[0]) if name in _COPIES else None
        if copied is not None:
            self._copies[address(result)] = copied
        elif self._copies:  # memory that was freed, and taken anew
            for one in tensors_in(result):
                self._copies.pop(address(one), None)
        if name not in _OPERANDS or not torch.is_grad_enabled():
            return
        operands: Any = [None if place is None else args[place] for place in _OPERANDS[name]]
        source, weight, bias = operands
        parameter = self._parameter(weight)
        if parameter is None or not address(source):
            return
        kind = _shared(name, args, source, weight, bias)
        if kind is None:
            return
        group = self._number(source), kind
        weights = self._weights.setdefault(group, {})
        # By its memory: a weight that an update changes in between is one layer, as are parts of one weight.
        weights.setdefault(parameter, tuple(weight.shape))
        if len(weights) == LEAST_LAYERS and group not in self._lines:
            self._lines[group] = self._line()

    def _parameter(self, tensor):
        """Address of the parameter that a tensor is, or a copy of in another type or form; None: it is none."""
        if not isinstance(tensor, torch.Tensor) or not address(tensor):
            return None
        whole = tensor if tensor._base is None else tensor._base
        if isinstance(whole, torch.nn.Parameter) and whole.requires_grad:
            return address(whole)
        return self._copies.get(address(whole))

    def found(self):
        kinds: Any = Counter()
        lines: Any = {}
        for group, weights in self._weights.items():
            if len(weights) >= LEAST_LAYERS:
                kind = group[1], tuple(sorted(weights.values()))
                kinds[kind] += 1
                lines.setdefault(kind, Counter())[self._lines[group]] += 1
        most = sorted(kinds, key=lambda kind: -kinds[kind] * _work(*kind))[:_MOST_KINDS]
        return [_told(kind, kinds[kind], lines[kind]) for kind in most]


def _shared(name, args, source, weight, bias):
    """What layers have to share with this one; None: it cannot be a part of another."""
    convolution: Any = ()
    if name == "convolution":
        if args[conv_forms.TRANSPOSED] or args[conv_forms.GROUPS] != 1:
            return None
        convolution = (
            *(tuple(args[at]) for at in (conv_forms.STRIDE, conv_forms.PADDING, conv_forms.DILATION)),
            tuple(weight.shape[1:]),
        )
    elif bias is not None and bias.dim() != 1:
        return None
    given = tuple(source.shape), source.dtype, source.device, source.requires_grad
    return _Input(name, *given, bool(convolution) or weight.stride(0) == 1, bias is not None, convolution)


def _work(source, weights):
    """Multiplications of a forward pass, about."""
    if not source.convolution:
        return source.shape[0] * sum(map(math.prod, weights))
    places = math.prod(source.shape[2:]) / math.prod(source.convolution[0])
    return source.shape[0] * places * sum(map(math.prod, weights))


def _told(kind, groups, lines):
    source, weights = kind
    found: Any = {
        "operator": source.name,
        "layers": len(weights),
        "groups": groups,
        "input": list(source.shape),
        "lines": [[*where[:3], count] for where, count in lines.most_common(_MOST_LINES) if where and where[0]],
    }
    return both_ways.told(found, _bytes(source, weights), lambda: _timed(source, weights))


def _bytes(source, weights):
    """Of the input, the weights, what comes out, and their gradients, in both ways."""
    places = source.shape[0]
    if source.convolution:
        places *= math.prod(source.shape[2:])  # more than come out
    outputs = sum(_outputs(source, shape) for shape in weights)
    elements = math.prod(source.shape) + 2 * sum(map(math.prod, weights)) + 2 * places * outputs
    return 2 * elements * torch.empty(0, dtype=source.dtype).element_size()


def _outputs(source, shape):
    return shape[0] if source.convolution else shape[1]


def _timed(source, weights):
    """Both passes of the layers one after the other, and of one layer whose weight is put together of theirs."""
    form = {"dtype": source.dtype, "device": source.device}
    given = torch.ones(source.shape, requires_grad=source.gradients, **form)
    matrices, biases = [], []
    for shape in weights:
        stored = shape if source.convolution or not source.rows else shape[::-1]
        matrices.append(torch.ones(stored, requires_grad=True, **form))
        if source.bias:
            biases.append(torch.ones(_outputs(source, shape), requires_grad=True, **form))
    sources = [*([given] if source.gradients else []), *matrices, *biases]
    sizes = [_outputs(source, shape) for shape in weights]

    def apart():
        return [_layer(source, given, *one) for one in zip(matrices, biases or [None] * len(matrices))]

    def joined():
        whole = torch.cat(matrices, 0 if source.rows else 1)
        return _layer(source, given, whole, torch.cat(biases) if biases else None).split(sizes, 1)

    times = both_ways.timed(apart, joined, sources)
    return dict(zip(("apart_ns", "joined_ns"), times))


def _layer(source, given, weight, bias):
    if source.convolution:
        stride, padding, dilation, _ = source.convolution
        return torch.convolution(given, weight, bias, stride, padding, dilation, False, [0] * len(stride), 1)
    matrix = weight.t() if source.rows else weight
    return given @ matrix if bias is None else torch.addmm(bias, given, matrix)
