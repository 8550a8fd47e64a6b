"""What of torch's gives what a function of the user's gives: asked with random numbers, and not by its name.

Both are asked with numbers of several sizes, with rows of zeros, of large numbers and of infinite ones, and for their
gradients. What may be seen elsewhere is left alone: functions that keep or draw something, or that call others.
"""

import copy
import dis
import math
import types
from typing import Any

import torch

from ..module_passes import is_hooked, reaches_outside, same_random_numbers
from ..sites import is_user_file
from .fused_forms import candidates

LEAST_ELEMENTS = 4096  # of the input: for fewer, what is saved is little
CLOSE = 2e-3  # of the largest value, in other calls: an epsilon may be added elsewhere
_MOST_PARAMETERS = 2  # of a module that may be such a function
_LEAST_ROWS, _ROWS = 2, 4  # that a function is asked about
_MOST_ELEMENTS = 1 << 17
_GRADIENTS, _LARGE_GRADIENTS = 1e-3, 300.0
_LARGEST_EPSILON = 0.1
_CONSTANT = (bool, int, float, str, type(None))
_STORES = ("STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR")
_torch: Any = torch._C
_hooks: Any = getattr(_torch._autograd, "_top_saved_tensors_default_hooks", None)  # missing in older ones


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
    with same_random_numbers(), torch.inference_mode(False), torch.no_grad():
        return _recognize(call, owner, like, numbers)


def _recognize(call, owner, like, numbers):
    own = torch.Generator().manual_seed(0)
    sample = torch.randn(_asked_shape(like), generator=own, dtype=like.dtype).to(like.device)
    if owner is not None:
        owner = copy.deepcopy(owner)
        for one in torch.nn.Module.parameters(owner):  # as they begin, a weight may do nothing
            one.copy_(torch.rand(one.shape, generator=own, dtype=one.dtype) + 0.5)
    before = torch.get_rng_state()
    given: Any = {}
    for fused, sizes, tolerances in candidates(owner, sample, numbers):
        for size, tolerance in zip(sizes, tolerances):
            if size not in given:
                given[size] = _asked(call, owner, sample * size)
            if given[size] is None:
                return None
            if not same(fused.compute(owner, sample * size), given[size], tolerance):
                break
        else:
            if not torch.equal(before, torch.get_rng_state()) or not _same_at_the_edges(call, fused, owner, sample):
                return None
            safe = _as_safe(call, fused, owner, sample)
            return safe if _same_gradients(call, safe, owner, sample) else None
    return None


def _asked_shape(like):
    """A few rows, and no size of one, by which different norms would be the same."""
    if like.dim() < 2:
        return tuple(like.shape)
    rest = [max(size, 2) for size in like.shape[1:]]
    return (min(max(_MOST_ELEMENTS // math.prod(rest), _LEAST_ROWS), _ROWS), *rest)


def _asked(call, owner, x):
    """What a function gives for a tensor, which it leaves as it is; None: it gives something else, or changes it."""
    before = x.clone()
    found = call(owner, x)
    if not isinstance(found, torch.Tensor) or (found.shape, found.dtype) != (x.shape, x.dtype):
        return None
    unlike = found.data_ptr() == x.data_ptr() or found.stride() != x.stride()
    return None if unlike or not torch.equal(before, x) else found


def _same_at_the_edges(call, fused, owner, sample):
    """Whether that holds where a program may have put a guard: for rows that random numbers do not give."""
    rows = sample.clone()
    rows[0] = 0.0
    rows[1:] *= 1e4
    infinite, nothing = sample.clone(), sample.clone()
    infinite.view(-1)[::3] = -math.inf
    nothing.view(-1)[::5] = math.nan
    edges = [rows, infinite, nothing]
    if fused.name.endswith("softmax"):
        edges += [torch.full_like(sample, -1e9), torch.full_like(sample, -math.inf)]
    for x in edges:
        wanted, found = call(owner, x), fused.compute(owner, x)
        finite = wanted.isfinite()
        if not torch.allclose(wanted[finite], found[finite], rtol=1e-2, atol=1e-3):
            return False
    return True


def _as_safe(call, fused, owner, sample):
    """The function on a copy of its input, or with a copy of its result, where the program may change these in place.

    What a backward pass needs of them is kept by torch's function, and may not have been by the program's.
    """
    inputs = _survives(call, owner, sample, changes_input=True)
    if inputs and not _survives(fused.compute, owner, sample, changes_input=True):
        fused = fused._replace(compute=_on_a_copy(fused.compute))
    if _survives(call, owner, sample) and not _survives(fused.compute, owner, sample):
        fused = fused._replace(compute=_copied(fused.compute))
    return fused


def _on_a_copy(compute):
    return lambda owner, x: compute(owner, x.clone())


def _copied(compute):
    return lambda owner, x: compute(owner, x).clone()


@torch.enable_grad()
def _survives(call, owner, sample, changes_input=False):
    """Whether gradients can be taken after the input, or else the result, was changed in place."""
    x = sample.detach().clone().requires_grad_()
    given = x * 1.0
    found = call(owner, given)
    with torch.no_grad():
        (given if changes_input else found).mul_(1.0)
    try:
        torch.autograd.grad(found.sum(), x)
    except RuntimeError:
        return False
    return True


@torch.enable_grad()
def _same_gradients(call, fused, owner, sample):
    """Whether the gradients are the same: a part may be detached, or cut off by a hook."""
    x = sample.detach().requires_grad_()
    sources = [x, *(() if owner is None else torch.nn.Module.parameters(owner))]
    for one in sources:
        one.requires_grad_()
    weights = torch.linspace(-1.0, 1.0, x.numel(), dtype=x.dtype, device=x.device).view(x.shape)
    for factor in (1.0, _LARGE_GRADIENTS):
        results = call(owner, x), fused.compute(owner, x)
        if not all(one.requires_grad for one in results):
            return False
        first, second = (torch.autograd.grad(one, sources, factor * weights, allow_unused=True) for one in results)
        for one, other in zip(first, second):
            if one is not other and (one is None or other is None or not same(one, other, _GRADIENTS)):
                return False
    return True


def is_plain(tensor):
    """Whether a tensor is one that the forms are for."""
    known = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    large = known and tensor.dtype in (torch.float32, torch.float64) and tensor.numel() >= LEAST_ELEMENTS
    return large and tensor.is_contiguous()


def keeps_tensors_elsewhere():
    """True where hooks see what a graph saves, as those of activation checkpointing do: it has to be the same again.

    Where torch does not say whether there are some, there may be.
    """
    return _hooks is None or _hooks(False) is not None


def same(one, other, tolerance):
    """Whether two results differ by no more than this part of the largest value."""
    if one.shape != other.shape:
        return False
    largest = float(other.abs().max())
    return math.isfinite(largest) and float((one - other).abs().max()) <= tolerance * largest


def _is_module(owner):
    """Whether a module is small enough to be such a function: a norm, an activation."""
    if next(owner.buffers(), None) is not None:
        return False
    for part in owner.modules():
        if part is not owner and (is_hooked(part) or type(part).__module__.partition(".")[0] != "torch"):
            return False
    every, own = list(torch.nn.Module.parameters(owner)), [one for one in owner._parameters.values() if one is not None]
    return len(every) == len(own) <= _MOST_PARAMETERS


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
        if not _is_module(owner):
            return None
    if not rest or not isinstance(rest[0], torch.Tensor) or any(type(one) not in _CONSTANT for one in rest[1:]):
        return None
    return owner, rest[0], tuple(rest[1:])


def constants(function, owner, others):
    """What a call depends on beside its tensor, as far as it may change: attributes, globals and other arguments."""
    attributes = () if owner is None else vars(owner).values()
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    return tuple((type(one), one) for one in (*others, *attributes, *named) if type(one) in _CONSTANT)


def may_be_seen_elsewhere(function):
    """Why calls of a function for nothing may be seen outside of it, or its state changes, as text; None: neither."""
    why = reaches_outside(function, function.__qualname__)
    if why is not None:
        return why
    code = function.__code__
    if any(one.opname in _STORES for one in dis.get_instructions(code)):
        return "it stores something"
    for name in code.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, types.FunctionType) and is_user_file(value.__code__.co_filename):
            return "it calls %s" % name
    return None


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
