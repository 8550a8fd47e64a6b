"""Weights that a step uses in many products that do not depend on each other: one product would do for all.

A loop over samples, patches or time steps calls the same layers on one piece after the other. In the graph of a
backward pass, no such call leads to another one; in a recurrent network each leads to the one before.
"""

from typing import Any

import torch

from ..device_rates import best_s, timer, values
from . import repeated_modules
from .graph_uses import VIEW_NAMES

LEAST_CALLS = 8  # that do not depend on each other
MOST_LOOPS, MOST_FOLLOWED = 2, 3  # loops, and weights in each, whose products are searched for dependence
MOST_TIMED = 64  # products
MOST_ELEMENTS = 1 << 22  # of their inputs
BUDGET_S = 0.06
_PRODUCTS = ("Addmm", "Mm", "Mv", "Addmv", "Bmm", "Baddbmm", "Linear", "Convolution")
# What only shows a weight in another form.


class RepeatedWeights:
    """The weight that takes most of such products, in the graphs that are looked at.

    Args:
        calls: counts the calls of modules; None: nothing does.
    """

    def __init__(self, calls=None):
        self._calls = calls
        self._found: Any = None
        self._weight: Any = None
        self._module: Any = None  # that is called in the loop, as ``ModuleCalls`` gives it

    def look(self, nodes):
        """Look at the graph of a backward pass: its nodes, each after those that it leads to."""
        calls = self._calls.take() if self._calls is not None else []
        uses, products = _uses(nodes)
        # The time steps of a recurrent layer are a loop of its own, whatever calls other layers as often.
        fused = {id(weight) for weight in repeated_modules.recurrent_weights(calls, LEAST_CALLS)}
        uses = [use for use in uses if id(use[0]) not in fused]
        best: Any = None
        repeated = 0
        for loop in _loops(uses):
            # A cell of a recurrent network has weights for its input too: the loop is as dependent as any of them.
            chain = max(_longest_chain(nodes, users) for _, users in loop[:MOST_FOLLOWED])
            # A weight that is computed, as an orthogonal one, is none of these: then the inputs of calls show it.
            inputs = _inputs(repeated_modules.around(loop[0][0], LEAST_CALLS * chain, calls), nodes)
            chain = max(chain, _longest_chain(nodes, inputs))
            if len(loop[0][1]) >= LEAST_CALLS * chain:
                repeated += sum(len(users) for _, users in loop)
                best = best or (*loop[0], chain)
        if best is None or (self._found is not None and len(best[1]) <= self._found["uses"]):
            return
        self._weight, users, longest = best
        self._module = repeated_modules.around(self._weight, LEAST_CALLS * longest, calls)
        shapes = sorted(tuple(node._input_metadata[0].shape) for node in users if hasattr(node, "_input_metadata"))
        self._found = {
            "uses": len(users),
            "chain": longest,
            "part": repeated / products,
            "shape": list(self._weight.shape),
            "output": list(shapes[len(shapes) // 2]) if shapes else [],
        }

    def described(self, names_of):
        """What the record says; None: there is no such weight.

        Args:
            names_of: gives the modules that have the parameters with these ids.
        """
        if self._found is None:
            return None
        found = dict(self._found, name="".join(names_of({id(self._weight)})[:1]))
        try:
            times = _timed(self._weight, found["output"], found["uses"] // found["chain"])
        except Exception:  # a kind of tensor with products of its own, or no memory
            times = None
        if times is not None:
            found["apart_s"], found["joined_s"] = times
        if self._module is not None:
            found["module"] = repeated_modules.timed(*self._module[:3])
            self._module = None
        return found


def _uses(nodes):
    """Pairs of a weight and the products with it, for each weight; and the number of all products."""
    shown: Any = {}  # id of a node that is a weight, in whatever form -> the weight
    uses: Any = {}
    products = 0
    for node in nodes:
        name = type(node).__name__.partition("Backward")[0]
        behind = [id(following) for following, _ in node.next_functions if following is not None]
        if type(node).__name__ == "AccumulateGrad":
            if node.variable.dim() >= 2:
                shown[id(node)] = node.variable
        elif name in VIEW_NAMES and len(behind) == 1 and behind[0] in shown:
            shown[id(node)] = shown[behind[0]]
        elif name.endswith(_PRODUCTS):
            products += 1
            weights = {id(shown[one]): shown[one] for one in behind if one in shown}
            for key, weight in weights.items():
                uses.setdefault(key, (weight, []))[1].append(node)
    return list(uses.values()), products


def _loops(uses):
    """Weights with their products, by the number of these: the largest weights first, in each loop and among loops."""
    loops: Any = {}
    for weight, users in sorted(uses, key=lambda found: -found[0].numel()):
        if len(users) >= LEAST_CALLS:
            loops.setdefault(len(users), []).append((weight, users))
    return sorted(loops.values(), key=lambda loop: -loop[0][0].numel() * len(loop[0][1]))[:MOST_LOOPS]


def _inputs(called, nodes):
    """Nodes of the graph that made what the module was called with."""
    wanted = set(called[3]) if called is not None else set()
    return [node for node in nodes if repeated_modules.number(node) in wanted] if wanted else []


def _longest_chain(nodes, users):
    """The most of these nodes on one path through the graph."""
    marked = {id(node) for node in users}
    longest: Any = {}
    for node in nodes:
        behind = max((longest.get(id(following), 0) for following, _ in node.next_functions), default=0)
        longest[id(node)] = behind + (id(node) in marked)
    return max(longest.values())


@torch.no_grad()
def _timed(weight, output, count):
    """Seconds of ``count`` products with a weight one by one, and as one; None of a kind that is not known.

    Args:
        weight: of a linear layer or a convolution.
        output: the shape of one product.
        count: that do not depend on each other; fewer are timed where they are many or large.
    """
    weight = weight.detach()
    made = _input_and_product(weight, output)
    if made is None:
        return None
    shape, product = made
    size = shape.numel()
    count = min(count, MOST_TIMED, MOST_ELEMENTS // max(size, 1))
    if count < 2:
        return None
    whole = values(count * size, weight.dtype, weight.device).view(count * shape[0], *shape[1:])
    parts = whole.split(shape[0])

    def apart():
        for part in parts:
            product(part)

    timed = timer(weight.device.type)
    with torch.autocast(weight.device.type, enabled=False):
        return best_s(apart, timed, BUDGET_S), best_s(lambda: product(whole), timed, BUDGET_S)


def _input_and_product(weight, output):
    """Shape of an input that gives an output of this shape, and the function that multiplies it with the weight."""
    kernel = weight.shape[2:]
    if weight.dim() == 2 and output and output[-1] in weight.shape:
        matrix = weight.t() if weight.shape[0] == output[-1] else weight
        rows = torch.Size(output).numel() // output[-1]
        return torch.Size((rows, matrix.shape[0])), lambda values: torch.mm(values, matrix)
    if kernel and len(output) == weight.dim() and output[1] == weight.shape[0]:
        ones, padding = [1] * len(kernel), [side // 2 for side in kernel]

        def convolve(values):
            return torch.convolution(values, weight, None, ones, padding, ones, False, [0] * len(kernel), 1)

        return torch.Size((output[0], weight.shape[1], *output[2:])), convolve
    return None
