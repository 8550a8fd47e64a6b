"""Attention by two products with a softmax between them, in steps after the window.

Its weights, one for each pair of positions, are written and read again by each operator between the products, and
kept for the backward pass. Both passes are timed so, and by the operator of torch's that does without them.
"""

import math
from collections import Counter, deque
from typing import Any

import torch
from torch.nn import functional as F

from ..recorder import REC
from . import both_ways

_LEAST_WEIGHTS = 1 << 16  # of attention, in a call
_MOST_NODES = 32  # between the products
_MOST_KINDS = 3  # in the record
_COPIES = 10  # of the weights, that both forms may hold
_DROPPED = 0.1  # where there is dropout: its probability changes no time
_SOFTMAX = "SoftmaxBackward0"
# Nodes that may lie between: those that only view, those that scale or mask, and dropout.
_VIEWS = ("View", "UnsafeView", "ReshapeAlias", "Expand", "Clone", "Transpose", "Permute", "Squeeze", "Unsqueeze", "T")
_BETWEEN = {"%sBackward%d" % (name, n) for name in (*_VIEWS, "ToCopy", "NativeDropout", "Mul", "Div") for n in (0, 1)}
_MASKS = {"%sBackward%d" % (name, n) for name in ("MaskedFill", "Add", "Sub", "Where") for n in (0, 1)}
_DROPOUT = {"NativeDropoutBackward0", "MulBackward0"}


class UnfusedAttention:
    """Finds it among the operators of a step.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
    """

    def __init__(self, line):
        self._line = line
        self._saved = False
        self.begin()

    def begin(self):
        """A step begins."""
        self._products: Any = {}  # number of a node -> sizes of the operands of a batched product
        self._calls: Any = Counter()  # a form of attention -> calls
        self._lines: Any = {}

    def look(self, name, args, _, made):
        """Look at an operator that has run, and is no part of a backward pass."""
        if name != "bmm" or made is None or self._saved:
            return
        weights, values = args[:2]
        self._products[made] = tuple(weights.shape), tuple(values.shape)
        if weights.numel() < _LEAST_WEIGHTS or 1 in weights.shape[1:]:
            return
        found = self._scores(weights.grad_fn)
        if found is None:
            return
        (queries, keys), masked, dropped = found
        if (queries[1], keys[2]) != tuple(weights.shape[1:]) or queries[0] != len(weights):
            return
        form = (*weights.shape, queries[2], values.shape[2]), masked, dropped, weights.dtype, weights.device
        self._calls[form] += 1
        if form not in self._lines:
            self._lines[form] = self._line()

    def _scores(self, node):
        """Sizes of the operands that weights were made of by a softmax; whether some are masked, and dropped."""
        pending: Any = deque([(node, False, False, False)])
        for _ in range(_MOST_NODES):
            if not pending:
                break
            node, softmax, masked, dropped = pending.popleft()
            if node is None:
                continue
            name = node.name()
            if softmax and name == "BmmBackward0":
                product = self._products.get(node._sequence_nr())
                if product is not None:
                    return product, masked, dropped
                continue
            if name == _SOFTMAX and not softmax:
                softmax = True
            elif name in _MASKS and softmax:
                masked = True
            elif name in _BETWEEN:
                dropped = dropped or (not softmax and name in _DROPOUT)
            else:
                continue
            pending += [(before, softmax, masked, dropped) for before, _ in node.next_functions]
        return None

    def save(self):
        """Write into the record what the first whole step showed; takes a second at the most where weights are few."""
        if self._saved:
            return
        self._saved = True
        most = sorted(self._calls, key=lambda form: -self._calls[form] * math.prod(form[0][:3]))
        found = [_told(form, self._calls[form], self._lines[form]) for form in most[:_MOST_KINDS]]
        if found:
            REC.save_process(unfused_attention=found)
        self.begin()


def _told(form, calls, line):
    (heads, queries, keys, width, value_width), masked, dropped, dtype, device = form
    found: Any = {
        "calls": calls,
        "input": [heads, queries, width],
        "keys": keys,
        "masked": masked,
        "dropout": dropped,
        "lines": [[*line[:3], calls]] if line and line[0] else [],
    }

    def times():
        sizes = (heads, queries, width), (heads, keys, width), (heads, keys, value_width)
        sources = [torch.ones(size, dtype=dtype, device=device, requires_grad=True) for size in sizes]
        mask = torch.ones(queries, keys, dtype=torch.bool, device=device) if masked else None
        plain, joined = both_ways.timed(
            lambda: _by_hand(mask, dropped, *sources),
            lambda: _in_one(mask, dropped, *sources),
            sources,
        )
        return {"plain_ns": plain, "joined_ns": joined}

    return both_ways.told(found, _COPIES * heads * queries * keys * torch.empty(0, dtype=dtype).element_size(), times)


def _by_hand(mask, dropped, q, k, v):
    scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.shape[2])
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e4)
    weights = scores.softmax(-1)
    return torch.bmm(F.dropout(weights, _DROPPED) if dropped else weights, v)


def _in_one(mask, dropped, q, k, v):
    dropout = _DROPPED if dropped else 0.0
    return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, dropout_p=dropout)[0]
