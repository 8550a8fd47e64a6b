"""Products, distances and cosines of all pairs of rows made by broadcasting, in steps after the window.

``((x[:, None] - y[None]) ** 2).sum(-1)`` writes a row for each pair, and reads it again; a matrix product gives the
same without. Both passes are timed in both forms.
"""

import math
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from ..replacements import pair_products
from . import both_ways
from .form_observer import FormObserver
from .graph_uses import behind_views

_MOST_KINDS = 3  # in the record
_COPIES = 8  # of what is made for the pairs, that both forms may hold
_MADE_BY = {"mul": "products", "sub": "distances", "rsub": "distances"}
_SUMS, _NORMS = {"sum", "mean"}, {"norm", "linalg_vector_norm"}
_SQUARED, _SHIFTED = ("PowBackward0", "MulBackward0"), ("AddBackward0", "AddBackward1")


class _Pairs(NamedTuple):
    """What is made for all pairs.

    Attributes:
        kind: products, distances or cosines.
        left: sizes of one operand, 1 where it is broadcast.
        right: of the other one.
        like: its type and device.
    """

    kind: str
    left: Any
    right: Any
    like: Any


class BroadcastPairs(FormObserver):
    """Finds them among the operators of a step.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
        uses: GraphUses of the step.
    """

    record = "broadcast_pairs"

    def __init__(self, line, uses):
        self._line, self._uses = line, uses
        super().__init__()

    def begin(self):
        self._made: Any = {}  # number of a node -> what is made for all pairs there
        self._divided: Any = {}  # number of a node -> sizes of what was broadcast, and divided by norms
        self._calls: Any = {}  # pairs, what is summed up, and whether its root is taken -> numbers of nodes
        self._lines: Any = {}

    def look(self, name, args, result, made):
        if made is None or not isinstance(result, torch.Tensor):
            return
        if name in _SUMS or name in _NORMS:
            self._summed(name, args, args[0].shape)
        elif result.numel() >= pair_products.LEAST_ELEMENTS and result.is_floating_point():
            self._combined(name, args, result, made)

    def _combined(self, name, args, result, made):
        if name == "div" and _is_norm(args[1]):
            self._divided[made] = pair_products.own_sizes(args[0], result.dim())
        if name not in _MADE_BY or not all(isinstance(one, torch.Tensor) for one in args[:2]):
            return
        kind, sizes = _MADE_BY[name], [pair_products.own_sizes(one, result.dim()) for one in args[:2]]
        divided = [self._divided.get(_number(one.grad_fn)) for one in args[:2]]
        if kind == "products" and None not in divided:
            kind, sizes = "cosines", divided
        left, right = sizes
        if pair_products.is_worth(left, right):
            self._made[made] = _Pairs(kind, left, right, (result.dtype, result.device))

    def _summed(self, name, args, shape):
        number = self._behind(args[0].grad_fn, name in _NORMS)
        if number is None or (name in _NORMS and len(args) > 1 and args[1] not in (2, None)):
            return
        pairs = self._made[number]
        place = 2 if name in _NORMS else 1
        dims = args[place] if len(args) > place else None  # what is as by default at the end is left out
        dims = {dim % len(shape) for dim in ([dims] if isinstance(dims, int) else dims or range(len(shape)))}
        if any(pairs.left[dim] != pairs.right[dim] for dim in dims):
            return  # a sum over one of the two can be taken before
        key = pairs, tuple(sorted(dims)), name in _NORMS
        self._calls.setdefault(key, []).append(number)
        if key not in self._lines:
            self._lines[key] = self._line()

    def _behind(self, node, norm):
        """The node that made what a sum is taken of: products as they are, differences squared, or within a norm."""
        number = _number(node)
        if number in self._made:
            return number if norm == (self._made[number].kind == "distances") else None
        if node is None or node.name() not in (_SHIFTED if norm else _SQUARED):
            return None
        before = [one for one, _ in node.next_functions if one is not None]
        if len(set(before)) != 1 or (node.name() == "MulBackward0" and len(before) != 2):
            return None
        number = _number(before[0])
        squared = norm or getattr(node, "_saved_exponent", 2) == 2
        return number if squared and number in self._made and self._made[number].kind == "distances" else None

    def found(self):
        # Where they are used once more, they are needed.
        calls = {key: sum(map(self._uses.once, numbers)) for key, numbers in self._calls.items()}
        most = sorted(filter(calls.get, calls), key=lambda key: -calls[key] * _elements(key[0]))
        return [_told(key, calls[key], self._lines[key]) for key in most[:_MOST_KINDS]]


def _number(node):
    return None if node is None else node._sequence_nr()


def _is_norm(divisor):
    """Whether norms of rows divide, as in F.cosine_similarity."""
    node = behind_views(divisor.grad_fn) if isinstance(divisor, torch.Tensor) else None
    return node is not None and "Norm" in node.name()


def _elements(pairs):
    return math.prod(map(max, pairs.left, pairs.right))


def _told(key, calls, line):
    pairs, dims, root = key
    shape = tuple(map(max, pairs.left, pairs.right))
    found: Any = {
        "calls": calls,
        "input": list(shape),
        "kind": pairs.kind,
        "left": list(pairs.left),
        "right": list(pairs.right),
        "lines": [[*line[:3], calls]] if line and line[0] else [],
    }

    def times():
        dtype, device = pairs.like
        x, y = (
            torch.ones(sizes, dtype=dtype, device=device, requires_grad=True) for sizes in (pairs.left, pairs.right)
        )
        plain, joined = both_ways.timed(
            lambda: _broadcast(pairs.kind, x, y, dims, root), lambda: _multiplied(pairs.kind, x, y, dims, root), [x, y]
        )
        return {"plain_ns": plain, "joined_ns": joined}

    return both_ways.told(found, _COPIES * math.prod(shape) * torch.empty(0, dtype=pairs.like[0]).element_size(), times)


def _broadcast(kind, x, y, dims, root):
    if kind == "cosines":
        return F.cosine_similarity(x, y, dim=dims[-1])
    if kind == "products":
        return (x * y).sum(dims)
    return torch.linalg.vector_norm(x - y, 2, dims) if root else (x - y).pow(2).sum(dims)


def _multiplied(kind, x, y, dims, root):
    if kind == "cosines":
        return pair_products.cosines(x, y, dims[-1])
    product = pair_products.product(x, y, dims)
    if kind == "products":
        return product
    squares = (x.pow(2).sum(dims) + y.pow(2).sum(dims) - 2 * product).clamp_min(1e-12)
    return squares.sqrt() if root else squares
