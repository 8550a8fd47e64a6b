"""Dropout on the CPU with masks that take less time to draw: other random numbers, of the same distribution."""

import functools
from typing import Any

import torch
from torch.nn import functional

from .. import quick_masks
from ..wrap import is_compiling, is_traced

SETTING = "quick_dropout"
RAREST = 1 / 256  # probability to be dropped, or to be kept: 16 bits are too coarse for a smaller one
LEAST = 4096  # elements: calls of less cost more than their random numbers
_functorch: Any = getattr(torch._C, "_functorch", None)
_wrapped: Any = getattr(_functorch, "is_functorch_wrapped_tensor", lambda tensor: False)  # newer than 2.1


def install(injected, watch):
    """Patch ``torch.nn.functional.dropout``, which ``nn.Dropout`` and ``nn.MultiheadAttention`` call."""
    if SETTING not in injected.wanted:
        return
    original = functional.dropout

    @functools.wraps(original)
    def dropout(input, p=0.5, training=True, inplace=False):
        plain = is_compiling() or is_traced() or not training or not injected.get(SETTING)
        if plain or not _replaceable(input, p):
            return original(input, p, training, inplace)
        mask = quick_masks.noise(input, p)
        injected.done(SETTING)
        return input.mul_(mask) if inplace else input * mask

    functional.dropout = dropout
    script = torch.jit.script

    @functools.wraps(script)
    def scripted(*args, **kwargs):
        functional.dropout = original  # its source is compiled, among the names of its own module
        try:
            return script(*args, **kwargs)
        finally:
            functional.dropout = dropout

    torch.jit.script = scripted


def _replaceable(input, p):
    if type(input) not in (torch.Tensor, torch.nn.Parameter) or _wrapped(input):
        return False
    if not isinstance(p, float) or not RAREST <= p <= 1.0 - RAREST:
        return False
    plain = input.device.type == "cpu" and input.layout is torch.strided and input.is_floating_point()
    return plain and input.numel() >= LEAST and input.is_contiguous()
