"""Layers with large weights that multiply one input after the other, though no product needs another one's result.

As the output layer of a decoder in a loop over words: each product reads the whole weight, and its gradient, as large
as the weight, is made and added up for each. Both passes are timed apart, and as one product after the loop.
"""

import math
from collections import Counter
from typing import Any

import torch

from . import both_ways
from .form_observer import FormObserver
from .repeated_rows import address

_OPERANDS = {"mm": (0, 1), "addmm": (1, 2)}  # places of input and weight
_LEAST_CALLS = 8
_LEAST_VALUES = 1 << 16  # of a weight: what each product adds beside its rows has to matter
_MOST_NODES = 20_000  # of the graph between the first calls
_MOST_TIMED = 24  # calls
_MOST_KINDS = 3  # in the record


class StepwiseProducts(FormObserver):
    """Finds them among the operators of a step.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
    """

    record = "stepwise_products"

    def __init__(self, line):
        self._line = line
        super().__init__()

    def begin(self):
        self._calls: Any = Counter()  # address of a parameter, and shapes -> products
        self._first: Any = {}  # the same -> the node of the first one
        self._lines: Any = {}  # the same, of those that do not depend on each other

    def look(self, name, args, _, made):
        places = _OPERANDS.get(name)
        if places is None or made is None:
            return
        source, weight = (args[place] for place in places)
        whole = weight if weight._base is None else weight._base
        if not isinstance(whole, torch.nn.Parameter) or not whole.requires_grad or whole.numel() < _LEAST_VALUES:
            return
        rows = weight.stride(0) == 1  # a row for each output, as nn.Linear has it
        kind = address(whole), (tuple(source.shape), tuple(weight.shape), rows), (source.dtype, source.device)
        self._calls[kind] += 1
        self._first.setdefault(kind, made)
        if self._calls[kind] == _LEAST_CALLS and not _leads_to(source.grad_fn, self._first[kind]):
            self._lines[kind] = self._line(), source.requires_grad

    def found(self):
        most = sorted(self._lines, key=lambda kind: -self._calls[kind] * math.prod(kind[1][1]))
        return [_told(kind, self._calls[kind], *self._lines[kind]) for kind in most[:_MOST_KINDS]]


def _leads_to(node, number):
    """Whether a node with this number lies behind a node of the graph; True where that is not known."""
    pending: Any = [node]
    seen: Any = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        if node._sequence_nr() == number or len(seen) >= _MOST_NODES:
            return True
        seen.add(node)
        pending += [before for before, _ in node.next_functions]
    return False


def _told(kind, calls, line, gradients):
    _, (shape, (inputs, outputs), of_outputs), (dtype, device) = kind
    timed = min(calls, _MOST_TIMED)
    found: Any = {
        "calls": calls,
        "input": list(shape),
        "weight": [inputs, outputs],
        "lines": [[*line[:3], calls]] if line and line[0] else [],
    }
    size = 4 * inputs * outputs + 3 * timed * shape[0] * (inputs + outputs)

    def times():
        stored = (outputs, inputs) if of_outputs else (inputs, outputs)
        weight = torch.ones(stored, dtype=dtype, device=device, requires_grad=True)
        sources = [torch.ones(shape, dtype=dtype, device=device, requires_grad=gradients) for _ in range(timed)]

        def product(source):
            return source @ (weight.t() if of_outputs else weight)

        apart, joined = both_ways.timed(
            lambda: [product(source) for source in sources],
            lambda: product(torch.cat(sources)).split(shape[0]),
            [weight, *(sources if gradients else ())],
        )
        # Of all calls, as of those that were timed: of one product, with more rows, at least as much is saved.
        return {
            "plain_ns": [round(ns * calls / timed) for ns in apart],
            "joined_ns": [round(ns * calls / timed) for ns in joined],
        }

    return both_ways.told(found, size * torch.empty(0, dtype=dtype).element_size(), times)
