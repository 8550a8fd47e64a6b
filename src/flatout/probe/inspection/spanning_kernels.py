"""Convolutions of one channel whose kernel spans a dimension, in steps after the window: both forms are timed."""

import math
from collections import Counter
from typing import Any

import torch

from ..replacements import conv_forms
from . import both_ways
from .form_observer import FormObserver

_MOST_KINDS = 4  # in the record


class SpanningKernels(FormObserver):
    """Finds them among the operators of a step.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
    """

    record = "spanning_kernels"

    def __init__(self, line):
        self._line = line
        super().__init__()

    def begin(self):
        self._calls: Any = Counter()  # shapes and all that tells how long a call takes -> calls
        self._lines: Any = {}

    def look(self, name, args, *_):
        if name != "convolution" or args[conv_forms.TRANSPOSED] or not torch.is_grad_enabled():
            return
        source, weight, bias = args[:3]
        stride, padding, dilation = (
            tuple(args[at]) for at in (conv_forms.STRIDE, conv_forms.PADDING, conv_forms.DILATION)
        )
        dimension = conv_forms.spanned(source, weight, stride, padding, dilation, args[conv_forms.GROUPS])
        if dimension is None or source.numel() < conv_forms.LEAST_ELEMENTS:
            return
        kind = (
            (tuple(source.shape), source.dtype, source.device, source.requires_grad),
            (tuple(weight.shape), bias is not None),
            (stride, padding, dilation, dimension),
        )
        self._calls[kind] += 1
        if kind not in self._lines:
            self._lines[kind] = self._line()

    def found(self):
        most = sorted(self._calls, key=lambda kind: -self._calls[kind] * math.prod(kind[0][0]) * math.prod(kind[1][0]))
        return [_told(kind, self._calls[kind], self._lines[kind]) for kind in most[:_MOST_KINDS]]


def _told(kind, calls, line):
    (shape, dtype, device, gradients), (kernel, biased), form = kind
    found: Any = {"calls": calls, "input": list(shape), "kernel": list(kernel), "lines": []}
    if line and line[0]:
        found["lines"] = [[*line[:3], calls]]

    def times():
        source = torch.ones(shape, dtype=dtype, device=device, requires_grad=gradients)
        weight = torch.ones(kernel, dtype=dtype, device=device, requires_grad=True)
        bias = torch.ones(kernel[0], dtype=dtype, device=device) if biased else None
        stride, padding, dilation, _ = form
        plain, joined = both_ways.timed(
            lambda: torch.conv2d(source, weight, bias, stride, padding, dilation),
            lambda: conv_forms.as_one_dimension(source, weight, bias, *form),
            [weight, source] if gradients else [weight],
        )
        return {"plain_ns": plain, "joined_ns": joined}

    return both_ways.told(found, 32 * (math.prod(shape) + math.prod(kernel)), times)
