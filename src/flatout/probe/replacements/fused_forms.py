"""Functions of torch's that programs write out by several operators: activations, norms, softmax.

Each operator reads and writes the whole tensor: on two cores of an AMD EPYC a GELU of seven operators took 3.5 times as
long as torch's, both passes, and a layer norm of five 4.9 times.
"""

import math
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

_LEAST_NORMALIZED = 8  # values of a row
_SIZES = (1.0, 1e-3, 6.0)  # of the random numbers
_ROUGH_SIZES = (1.0, 0.1, 6.0)
_CLOSE, _ROUGH = (1e-4, 1e-3, 1e-4), (1e-4, 1e-3, 1e-4)  # that results may differ by, of the largest value
_EXACT = (2e-5, 2e-5, 2e-5)
_USUAL = (1e-5, 1e-6, 1e-8, 1e-12)  # that are added to a variance; without one, a row of one value has no norm


class Fused(NamedTuple):
    """A function of torch's that gives the same.

    Attributes:
        name: of it in ``torch.nn.functional``.
        code: how it is called.
        compute: called with the module whose method it replaces, or None, and the input.
        dim: along which it needs so many values, None: along none.
        size: how many.
    """

    name: str
    code: str
    compute: Any
    dim: Any = None
    size: int = 0

    def takes(self, x):
        """Whether it takes an input of this shape."""
        return self.dim is None or x.shape[self.dim] == self.size


def candidates(owner, sample, numbers):
    """What may give the same, with the sizes to ask about and how close it has to be."""
    for name, code, compute in (
        ("gelu", "F.gelu(x)", lambda owner, x: F.gelu(x)),
        ("gelu", "F.gelu(x, approximate='tanh')", lambda owner, x: F.gelu(x, approximate="tanh")),
        ("silu", "F.silu(x)", lambda owner, x: F.silu(x)),
        ("mish", "F.mish(x)", lambda owner, x: F.mish(x)),
        ("softplus", "F.softplus(x)", lambda owner, x: F.softplus(x)),
        ("logsigmoid", "F.logsigmoid(x)", lambda owner, x: F.logsigmoid(x)),
        ("hardswish", "F.hardswish(x)", lambda owner, x: F.hardswish(x)),
    ):
        yield Fused(name, code, compute), _SIZES, _EXACT
    for dim in (-1, 1) if sample.dim() > 2 else (-1,):
        yield _softmax("softmax", F.softmax, dim), _SIZES, _EXACT
        yield _softmax("log_softmax", F.log_softmax, dim), _SIZES, _EXACT
    numbers = dict.fromkeys((*numbers, *_USUAL))
    for dim in (-1, 1) if sample.dim() > 2 else (-1,):
        yield from _norms(owner, sample.shape[dim], dim, numbers)
    if sample.dim() > 2:
        yield from _norms_of_samples(owner, sample.shape[1], numbers)


def _softmax(name, function, dim):
    return Fused(name, "F.%s(x, %d)" % (name, dim), lambda owner, x: function(x, dim))


def _norms(owner, size, dim, numbers):
    if size < _LEAST_NORMALIZED:
        return
    less = math.sqrt((size - 1) / size)  # of the deviation that divides by one less
    for weight, bias in _orders(owner, size):
        for number in numbers:
            yield _norm(weight, bias, size, dim, number), _SIZES, _CLOSE
            yield _norm(weight, bias, size, dim, number * less**2, less), _SIZES, _CLOSE
        for number in numbers:  # added to the deviation
            yield _norm(weight, bias, size, dim, number**2), _ROUGH_SIZES, _ROUGH
            yield _norm(weight, bias, size, dim, (number * less) ** 2, less), _ROUGH_SIZES, _ROUGH
        if hasattr(F, "rms_norm") and bias is None:
            for number in numbers:
                yield _rms_norm(weight, size, dim, number), _SIZES, _CLOSE


def _norms_of_samples(owner, channels, numbers):
    """Norms of all values of a sample, or of each of its channels."""
    for weight, bias in _orders(owner, channels):
        for number in numbers:
            yield _group_norm(weight, bias, channels, number), _SIZES, _CLOSE
            yield _instance_norm(weight, bias, channels, number), _SIZES, _CLOSE


def _orders(owner, size):
    """Names of weight and bias, each way round, where the parameters have this many values."""
    names: Any = [name for name, one in owner._parameters.items() if one is not None] if owner is not None else []
    if any(owner._parameters[name].numel() != size for name in names):
        return []
    orders: Any = {0: [(None, None)], 1: [(*names, None), (None, *names)], 2: [tuple(names), tuple(names[::-1])]}
    return orders.get(len(names), [])


def _group_norm(weight, bias, channels, epsilon):
    def compute(owner, x):
        return F.group_norm(x, 1, _flat(owner, weight), _flat(owner, bias), epsilon)

    code = "F.group_norm(x, 1, %s, %s, %.3g)" % (_shown(weight), _shown(bias), epsilon)
    return Fused("group_norm", code, compute, 1, channels)


def _instance_norm(weight, bias, channels, epsilon):
    def compute(owner, x):
        return F.instance_norm(x, weight=_flat(owner, weight), bias=_flat(owner, bias), eps=epsilon)

    code = "F.instance_norm(x, weight=%s, bias=%s, eps=%.3g)" % (_shown(weight), _shown(bias), epsilon)
    return Fused("instance_norm", code, compute, 1, channels)


def _flat(owner, name):
    """A parameter in one dimension, whatever its shape."""
    return None if name is None else getattr(owner, name).reshape(-1)


def _shown(name):
    return "self.%s" % name if name else "None"


def _norm(weight, bias, size, dim, epsilon, factor=1.0):
    """A layer norm whose weight is this factor times the module's."""

    def compute(owner, x):
        scale, shift = _flat(owner, weight), _flat(owner, bias)
        if factor != 1.0:
            scale = torch.full((size,), factor, dtype=x.dtype, device=x.device) if scale is None else scale * factor
        if dim == -1:
            return F.layer_norm(x, (size,), scale, shift, epsilon)
        return F.layer_norm(x.movedim(dim, -1), (size,), scale, shift, epsilon).movedim(-1, dim).contiguous()

    scale = _shown(weight)
    if factor != 1.0:
        scale = "%s%r" % (scale + " * " if weight else "", round(factor, 6))
        scale = scale if weight else "torch.full((%d,), %s)" % (size, scale)
    code = _moved("layer_norm", dim, "(%d,), %s, %s, %.3g" % (size, scale, _shown(bias), epsilon))
    return Fused("layer_norm", code, compute, dim, size)


def _rms_norm(weight, size, dim, epsilon):
    function: Any = getattr(F, "rms_norm", None)

    def compute(owner, x):
        scale = _flat(owner, weight)
        if dim == -1:
            return function(x, (size,), scale, epsilon)
        return function(x.movedim(dim, -1), (size,), scale, epsilon).movedim(-1, dim).contiguous()

    code = _moved("rms_norm", dim, "(%d,), %s, %.3g" % (size, _shown(weight), epsilon))
    return Fused("rms_norm", code, compute, dim, size)


def _moved(name, dim, rest):
    if dim == -1:
        return "F.%s(x, %s)" % (name, rest)
    return "F.%s(x.movedim(%d, -1), %s).movedim(-1, %d)" % (name, dim, rest, dim)
