"""Attention by two products with a softmax between them, in steps after the window.

Its weights, one for each pair of positions, are written and read again by each operator between the products, and
kept for the backward pass. Both passes are timed so, and by the operator of torch's that does without them.
"""

import math
from typing import Any

import torch
from torch.nn import functional as F

from . import both_ways
from .form_observer import FormObserver
from .graph_uses import VIEWS

_LEAST_WEIGHTS = 1 << 16  # of attention, in a call
_MOST_NODES = 32  # between the products
_MOST_KINDS = 3  # in the record
_COPIES = 10  # of the weights, that both forms may hold
_DROPPED = 0.1  # where there is dropout: its probability changes no time
_SAMPLED = 4096  # values of a mask after the softmax, that show whether it is dropout


class UnfusedAttention(FormObserver):
    """Finds it among the operators of a step.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
        uses: GraphUses of the step.
    """

    record = "unfused_attention"

    def __init__(self, line, uses):
        self._line, self._uses = line, uses
        super().__init__()

    def begin(self):
        self._products: Any = {}  # number of a node -> sizes of the operands of a batched product
        self._calls: Any = {}  # a form of attention -> numbers of the nodes of each call
        self._lines: Any = {}

    def look(self, name, args, _, made):
        if name != "bmm" or made is None:
            return
        weights, values = args[:2]
        self._products[made] = tuple(weights.shape), tuple(values.shape)
        if weights.numel() < _LEAST_WEIGHTS or 1 in weights.shape[1:] or weights.stride(2) != 1:
            return
        found = _Path(self._products).followed(weights.grad_fn)
        if found is None:
            return
        queries, keys = found.operands
        if (queries[1], keys[2]) != tuple(weights.shape[1:]) or queries[0] != len(weights):
            return
        sizes = (*weights.shape, queries[2], values.shape[2])
        form = sizes, found.masked, found.dropped, weights.dtype, weights.device
        self._calls.setdefault(form, []).append(found.numbers)
        if form not in self._lines:
            self._lines[form] = self._line()

    def differentiated(self):
        """The gradient gets a gradient, which torch's operator does not have on every device."""
        self.done = True

    def _used_once(self, numbers):
        return all(map(self._uses.once, numbers))

    def found(self):
        # Where weights or scores are used once more, they are needed.
        calls = {form: sum(map(self._used_once, each)) for form, each in self._calls.items()}
        most = sorted(filter(calls.get, calls), key=lambda form: -calls[form] * math.prod(form[0][:3]))
        return [_told(form, calls[form], self._lines[form]) for form in most[:_MOST_KINDS]]


class _Path:
    """The way from weights back to the product that their scores are.

    Attributes:
        operands: sizes of those of the product.
        numbers: of the nodes on the way whose values no other operator may take.
        masked: some scores are left out.
        dropped: some weights are.
    """

    def __init__(self, products):
        self._products = products
        self.operands: Any = None
        self.numbers: Any = []
        self.masked = self.dropped = False

    def followed(self, node):
        """The path, if it ends at a product; None: this is no attention of torch's."""
        softmax = False
        for _ in range(_MOST_NODES):
            if node is None:
                return None
            name = node.name().rpartition("Backward")[0]
            if node.name() not in VIEWS:
                self.numbers.append(node._sequence_nr())
            if name == "Bmm" and softmax:
                self.operands = self._products.get(self.numbers[-1])
                return None if self.operands is None else self
            if name == "Softmax" and not softmax and _is_last(node):
                softmax = True
            elif node.name() not in VIEWS and not (self._scores if softmax else self._weights)(name, node):
                return None
            before = [one for one, _ in node.next_functions if one is not None]
            if len(before) != 1:
                return None  # what it was joined with has gradients, such as a bias that is learned
            node = before[0]
        return None

    def _scores(self, name, node):
        """Whether a node scales or masks scores."""
        if name in ("MaskedFill", "Add", "Sub", "Where"):
            self.masked = True
            return True
        return name in ("Mul", "Div") and _is_number(node)

    def _weights(self, name, node):
        """Whether a node is dropout."""
        if name == "NativeDropout" or (name == "Mul" and _is_dropout(getattr(node, "_saved_other", None))):
            self.dropped = True
            return True
        return False


def _is_last(softmax):
    """Whether weights add up to one over the last dimension."""
    shape = softmax._saved_result.shape
    return softmax._saved_dim % (1 << 64) in (len(shape) - 1, (1 << 64) - 1)


def _is_number(node):
    """Whether a product or a quotient is with a number."""
    other = getattr(node, "_saved_other", None)
    return not isinstance(other, torch.Tensor) or other.numel() == 1


def _is_dropout(mask):
    """Whether a mask holds zeros and one value above one."""
    if not isinstance(mask, torch.Tensor) or not mask.numel():
        return False
    values = mask.detach().flatten()[:_SAMPLED].unique()
    return len(values) == 2 and float(values[0]) == 0.0 and float(values[1]) > 1.0


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
