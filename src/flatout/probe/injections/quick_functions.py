"""Functions of ``torch.nn.functional`` in forms that take less time: dropout, losses, convolutions, cosines."""

import functools
from typing import Any

import torch
from torch.nn import functional

from ..replacements import conv_forms, pair_products, quick_bce, quick_masks
from ..wrap import casts, is_compiling, is_traced

DROPOUT = "quick_dropout"
BCE = "quick_bce"
CONV = "quick_conv"
COSINE = "quick_cosine"
RAREST = 1 / 256  # probability to be dropped, or to be kept: 16 bits are too coarse for a smaller one
# Elements: calls of less cost more than they save.
LEAST_MASK = 4096
LEAST_LOSSES = 16_384
_functorch: Any = getattr(torch._C, "_functorch", None)
_wrapped: Any = getattr(_functorch, "is_functorch_wrapped_tensor", lambda tensor: False)  # newer than 2.1


def install(injected, watch):
    """Patch what ``nn.Dropout``, ``nn.BCELoss``, ``nn.Conv2d`` and ``nn.CosineSimilarity`` call."""
    if DROPOUT in injected.wanted:
        _replace(injected, DROPOUT, dropout)
    if BCE in injected.wanted:
        _replace(injected, BCE, binary_cross_entropy)
    if CONV in injected.wanted:
        _replace(injected, CONV, conv2d)
    if COSINE in injected.wanted:
        _replace(injected, COSINE, cosine_similarity)


def _replace(injected, setting, quick):
    """Let ``quick`` answer the calls of the function with its name; where it gives None, torch's own does."""
    name = quick.__name__
    original = getattr(functional, name)

    @functools.wraps(original)
    def replaced(*args, **kwargs):
        if is_compiling() or is_traced() or not injected.get(setting):
            return original(*args, **kwargs)
        if torch._C._len_torch_dispatch_stack():  # a mode of the program's sees its own calls only
            return original(*args, **kwargs)
        found = quick(*args, **kwargs)
        if found is None:
            return original(*args, **kwargs)
        injected.done(setting)
        return found

    # Pickled by name, a function of C as well.
    replaced.__module__, replaced.__qualname__ = functional.__name__, name
    setattr(functional, name, replaced)
    script = torch.jit.script

    @functools.wraps(script)
    def scripted(*args, **kwargs):
        before = getattr(functional, name)  # a function that is scripted may have others scripted
        setattr(functional, name, original)  # its source is compiled, among the names of its own module
        try:
            return script(*args, **kwargs)
        finally:
            setattr(functional, name, before)

    torch.jit.script = scripted


def dropout(input, p=0.5, training=True, inplace=False):
    """Dropout with a mask from few random bits; None: torch's own has to be called."""
    if not training or not _is_plain(input, LEAST_MASK):
        return None
    if not isinstance(p, float) or not RAREST <= p <= 1.0 - RAREST:
        return None
    mask = quick_masks.noise(input, p)
    return input.mul_(mask) if inplace else input * mask


def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The loss with logarithms of vectors; None: torch's own has to be called."""
    if weight is not None or size_average is not None or reduce is not None or reduction not in quick_bce.REDUCTIONS:
        return None
    if not _is_plain(input, LEAST_LOSSES) or not _is_plain(target, LEAST_LOSSES) or target.requires_grad:
        return None
    if input.shape != target.shape or input.dtype not in (torch.float32, torch.float64) or input.dtype != target.dtype:
        return None
    # A custom function has no forward-mode derivative.
    if torch.overrides.has_torch_function((input, target)) or torch.autograd.forward_ad._current_level >= 0:
        return None
    return quick_bce.binary_cross_entropy(input, target, reduction)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """A convolution of one channel in one dimension, where its kernel spans the other; None: torch's own is called."""
    tensors = [input, weight] if bias is None else [input, weight, bias]
    if any(type(one) not in (torch.Tensor, torch.nn.Parameter) or _wrapped(one) for one in tensors):
        return None
    if any(one.layout is not torch.strided or one.device != input.device for one in tensors):
        return None
    if input.numel() < conv_forms.LEAST_ELEMENTS or not weight.numel() or type(groups) is not int:
        return None
    form = [tuple(one) if isinstance(one, (tuple, list)) else (one, one) for one in (stride, padding, dilation)]
    if any(len(one) != 2 or any(type(size) is not int for size in one) for one in form):
        return None  # also text, such as "same"; what torch refuses, it refuses by itself
    stride, padding, dilation = form
    dimension = conv_forms.spanned(input, weight, stride, padding, dilation, groups)
    if dimension is None or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    other = 3 - dimension
    if input.shape[2 + other] + 2 * padding[other] <= dilation[other] * (weight.shape[2 + other] - 1):
        return None
    if min(stride) < 1 or min(dilation) < 1 or min(padding) < 0:
        return None
    return conv_forms.as_one_dimension(input, weight, bias, stride, padding, dilation, dimension)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """Cosines of all pairs as a product of matrices; None: torch's own has to be called."""
    for one in (x1, x2):
        if type(one) not in (torch.Tensor, torch.nn.Parameter) or _wrapped(one):
            return None
        if one.layout is not torch.strided or one.dtype not in (torch.float32, torch.float64) or one.dtype != x1.dtype:
            return None
    if type(eps) is not float or eps <= 0:
        return None
    dims = max(x1.dim(), x2.dim())
    if x1.device != x2.device or type(dim) is not int or not -dims <= dim < dims <= pair_products.MOST_DIMS:
        return None
    # In half precision torch computes them in single, a product of matrices in half.
    if casts():
        return None
    own = [pair_products.own_sizes(one, dims) for one in (x1, x2)]
    if own[0][dim] != own[1][dim] or not pair_products.is_worth(*own):
        return None
    if any(1 != a != b != 1 for a, b in zip(*own)):
        return None  # what torch refuses, it refuses by itself
    shape = torch.broadcast_shapes(x1.shape, x2.shape)
    if list(shape) != [max(sizes) for sizes in zip(*own)]:
        return None  # both are broadcast there
    left, right = (pair_products.narrowed(one, dims) for one in (x1, x2))
    return pair_products.cosines(left, right, dim, eps)


def _is_plain(tensor, least):
    """Whether it is a contiguous tensor of floats on the CPU, with enough elements."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or _wrapped(tensor):
        return False
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.is_floating_point()
    return plain and tensor.numel() >= least and tensor.is_contiguous()
