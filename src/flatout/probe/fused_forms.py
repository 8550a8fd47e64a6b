"""Functions that compute by several operators what torch has as one: activations, layer norms, softmax.

They are recognised by what they give, not by their names: both are called with the same random numbers, of three
sizes. Each operator reads and writes the whole tensor; on two cores of an AMD EPYC a GELU of seven operators took 3.5
times as long as torch's, both passes, and a layer norm of five 4.9 times.
"""

import copy
import math
import types
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

LEAST_ELEMENTS = 4096  # of the input: for fewer, what is saved is little
MOST_PARAMETERS = 2  # of a module that may be such a function
_LEAST_NORMALIZED = 8  # values of a row
_LEAST_ROWS, _ROWS = 2, 4  # that a function is asked about
_MOST_ELEMENTS = 1 << 17
_SIZES = (1.0, 1e-3, 6.0)  # of the random numbers
_ROUGH_SIZES = (1.0, 0.1, 6.0)
_CLOSE, _ROUGH = (1e-4, 1e-3, 1e-4), (1e-4, 1e-3, 1e-4)  # relative, for each size
_EXACT = (2e-5, 2e-5, 2e-5)
_GRADIENTS = 1e-3
CLOSE = 2e-3  # of the largest value, in other calls: an epsilon may be added elsewhere
_USUAL = (1e-5, 1e-6, 1e-8, 1e-12)  # that are added to a variance; without one, a row of one value has no norm
_LARGEST_EPSILON = 0.1
_CONSTANT = (bool, int, float, str, type(None))


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


def recognize(call, owner, like, numbers):
    """What of torch's gives what a function gives; None: nothing is known that does.

    Args:
        call: called with a module, or None, and a tensor.
        owner: the module whose method it is, or None. It is copied.
        like: a tensor, as the function gets it: its shape, type and device are asked about.
        numbers: that the function may add to a variance.
    """
    if not is_plain(like):
        return None
    each = math.prod(like.shape[1:])
    rows = min(len(like), max(_MOST_ELEMENTS // each, _LEAST_ROWS), _ROWS)
    shape = (rows, *like.shape[1:]) if like.dim() > 1 else tuple(like.shape)
    own = torch.Generator().manual_seed(0)  # the training's random numbers stay as they are
    sample = torch.randn(shape, generator=own, dtype=like.dtype).to(like.device)
    with torch.inference_mode(False), torch.no_grad():
        if owner is not None:
            owner = copy.deepcopy(owner)
            for one in torch.nn.Module.parameters(owner):  # as they begin, a weight may do nothing
                one.copy_(torch.rand(one.shape, generator=own, dtype=one.dtype) + 0.5)
        given: Any = {size: _asked(call, owner, sample * size) for size in {*_SIZES, *_ROUGH_SIZES}}
        if None in given.values():
            return None
        for fused, sizes, tolerances in _candidates(owner, sample, numbers):
            if all(
                same(fused.compute(owner, sample * size), given[size], tolerance)
                for size, tolerance in zip(sizes, tolerances)
            ):
                return fused if _same_gradients(call, fused, owner, sample) else None
    return None


def _asked(call, owner, x):
    """What a function gives for a tensor, which it leaves as it is; None: it gives something else, or changes it."""
    before = x.clone()
    found = call(owner, x)
    if not isinstance(found, torch.Tensor) or (found.shape, found.dtype) != (x.shape, x.dtype):
        return None
    return found if found.data_ptr() != x.data_ptr() and torch.equal(before, x) else None


@torch.enable_grad()
def _same_gradients(call, fused, owner, sample):
    """Whether the gradients are the same: a part may be detached."""
    x = sample.detach().requires_grad_()
    sources = [x, *(() if owner is None else torch.nn.Module.parameters(owner))]
    weights = torch.linspace(-1.0, 1.0, x.numel(), dtype=x.dtype, device=x.device).view(x.shape)
    for one in sources:
        one.requires_grad_()
    results = call(owner, x), fused.compute(owner, x)
    if not all(one.requires_grad for one in results):
        return False
    first, second = (torch.autograd.grad(one, sources, weights, allow_unused=True) for one in results)
    return all(
        one is other is None or (one is not None and other is not None and same(one, other, _GRADIENTS))
        for one, other in zip(first, second)
    )


def is_plain(tensor):
    """Whether a tensor is one that the forms are for."""
    known = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return known and tensor.dtype in (torch.float32, torch.float64) and tensor.numel() >= LEAST_ELEMENTS


def same(one, other, tolerance):
    """Whether two results differ by no more than this part of the largest value."""
    if one.shape != other.shape:
        return False
    largest = float(other.abs().max())
    return math.isfinite(largest) and float((one - other).abs().max()) <= tolerance * largest


def is_module(owner):
    """Whether a module is small enough to be such a function: a norm, an activation."""
    if not isinstance(owner, torch.nn.Module) or next(owner.buffers(), None) is not None:
        return False
    every, own = list(torch.nn.Module.parameters(owner)), [one for one in owner._parameters.values() if one is not None]
    return len(every) == len(own) <= MOST_PARAMETERS


def arguments(code, values):
    """The module, the tensor and the constants among the arguments of a call; None: there are others.

    Args:
        code: of the function.
        values: of its arguments, in order.
    """
    if code.co_kwonlyargcount or code.co_flags & 12:  # *args, **kwargs
        return None
    owner: Any = None
    rest = list(values)
    if rest and isinstance(rest[0], torch.nn.Module):
        owner = rest.pop(0)
        if not is_module(owner):
            return None
    if not rest or not isinstance(rest[0], torch.Tensor) or any(type(one) not in _CONSTANT for one in rest[1:]):
        return None
    return owner, rest[0], tuple(rest[1:])


def numbers_of(function, owner):
    """The small numbers that a function may add to a variance: its constants and defaults, and those of its module."""
    found: Any = [*_constants(function.__code__), *(function.__defaults__ or ())]
    found += [function.__globals__.get(name) for name in function.__code__.co_names]
    found += vars(owner).values() if owner is not None else ()
    return sorted({one for one in found if type(one) is float and 0 < one <= _LARGEST_EPSILON})


def _constants(code):
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _constants(one)
        else:
            yield one


def _candidates(owner, sample, numbers):
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
