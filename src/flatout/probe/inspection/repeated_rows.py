"""Products with rows that repeat: ``Linear(cat([state.repeat(n, 1), inputs]))``, or of the two ends of each edge.

The product of a row that is there n times is computed n times. As a product goes by columns, its weight can be split:
one part is multiplied with each state once, and what comes out is repeated, or taken by index. Columns that the same
weight has multiplied before in a step, such as the inputs of attention at each time step, need no product either.
"""

from typing import Any

import torch

from ..module_passes import tensors_in
from ..recorder import REC

_PRODUCTS = {"mm": 0, "addmm": 1}  # place of the rows among the arguments
_COPIES = ("clone", "contiguous", "_to_copy")
_TAKES = ("index", "index_select")
_FORMS = ("_unsafe_view", "_reshape_alias")  # show a tensor in another form, and are not said to
_LEAST_TIMES = 2.0
_LEAST_NEEDLESS = 0.2  # of a product
_MOST_LINES = 4


class _Rows:
    """A tensor whose rows are put together of parts.

    Attributes:
        parts: of a row: its columns, how often each of its values is there, and the number of those.
        calls: places of the calls that made it.
        nodes: of the graph, that their backward passes have.
    """

    def __init__(self, parts, calls, nodes):
        self.parts, self.calls, self.nodes = parts, calls, nodes


class RepeatedRows:
    """Follows rows through the operators of a step.

    Args:
        number: what tells the value of a tensor from others, as text or number.
        line: file, line and function of the user's that calls the present operator, or None.
    """

    def __init__(self, number, line):
        self._number, self._line = number, line
        self.begin()

    def begin(self):
        """A step begins."""
        self._rows: Any = {}  # address of memory -> its rows
        self._seen: Any = set()  # number of a weight, first column, number of the value that it multiplied
        self._calls: Any = {}  # place of a call -> part of it that is needless
        self._nodes: Any = {}  # the same of the nodes of the graph
        self._lines: Any = {}  # file, line and function -> places of their products
        self._products, self._times = 0, 1.0

    def look(self, name, args, result, place, node):
        """Look at an operator that has run, shows no other tensor in another form, and is no part of a backward pass.

        Args:
            name: of the operator, without its overload.
            args: as it was called.
            result: that it gave.
            place: of the call among those of the step.
            node: of the graph, that its backward pass has.
        """
        if name in _FORMS:
            return
        first = _PRODUCTS.get(name)
        if first is not None:
            self._multiplied(args[first], args[first + 1], place, node)
        made = None
        if name == "cat":
            made = self._joined(args, result)
        elif name in ("repeat", *_COPIES, *_TAKES):
            made = self._repeated(name, args[0], result)
        for tensor in tensors_in(result):
            self._rows.pop(address(tensor), None)
        if made is not None:
            made.calls.append(place)
            made.nodes.append(node)
            self._rows[address(result)] = made

    def _repeated(self, name, source, result):
        if not address(source) or not source.dim() or result.shape[-1:] != source.shape[-1:]:
            return None
        if name in _COPIES:
            known = self._rows.get(address(source))
            if known is not None:  # in another order
                return _Rows(known.parts, [*known.calls], [*known.nodes])
            times = _expanded(source)
        else:
            times = result.numel() / source.numel()
        if times < _LEAST_TIMES:
            return None
        return _Rows([(result.shape[-1], times, self._number(source))], [], [])

    def _joined(self, args, result):
        tensors, dimension = args[0], args[1] if len(args) > 1 else 0
        if not address(result) or dimension % result.dim() != result.dim() - 1:
            return None
        parts, calls, nodes = [], [], []
        for tensor in tensors:
            known = self._rows.get(address(tensor))
            if known is not None and sum(part[0] for part in known.parts) == tensor.shape[-1]:
                parts += known.parts
                calls += known.calls
                nodes += known.nodes
            else:
                parts.append((tensor.shape[-1], _expanded(tensor), self._number(tensor)))
        return _Rows(parts, calls, nodes)

    def _multiplied(self, rows, weight, place, node):
        known = self._rows.get(address(rows))
        columns = rows.shape[-1]
        if known is None or sum(part[0] for part in known.parts) != columns or rows.stride(-1) != 1:
            return
        needless, first = 0.0, 0
        for width, times, number in known.parts:
            key = self._number(weight), first, number
            needless += width / columns * (1.0 if key in self._seen else 1.0 - 1.0 / times)
            self._seen.add(key)
            self._times = max(self._times, times)
            first += width
        if needless < _LEAST_NEEDLESS:
            return
        self._products += 1
        self._calls[place] = needless
        self._nodes[node] = needless
        self._calls.update(dict.fromkeys(known.calls, needless))
        self._nodes.update(dict.fromkeys(known.nodes, needless))
        self._lines.setdefault(self._line(), []).append(place)

    def save(self, calls, ns):
        """Write into the record what the step showed.

        Args:
            calls: of the step, in their order, with the node that each is a part of.
            ns: gives the time of one.
        """
        self._nodes.pop(None, None)
        if not self._products:
            return
        found: Any = {"ns": 0, "needless_ns": 0, "products": self._products, "times": round(self._times, 2)}
        for place, call in enumerate(calls):
            taken = ns(call)
            found["ns"] += taken
            part = self._calls.get(place, 0.0) if call.node is None else self._nodes.get(call.node, 0.0)
            found["needless_ns"] += int(part * taken)
        by_user = {where: places for where, places in self._lines.items() if where and where[0]}
        spent = {where: sum(ns(calls[place]) for place in places) for where, places in by_user.items()}
        most = sorted(spent, key=lambda where: -spent[where])[:_MOST_LINES]
        found["lines"] = [[*where[:3], spent[where], len(self._lines[where])] for where in most]
        REC.save_process(repeated_rows=found)


def address(tensor):
    """Of its memory; 0: it has none of its own, as a sparse, nested or wrapped tensor, or is empty."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return tensor.untyped_storage().data_ptr() if plain and not tensor.is_nested and tensor.numel() else 0


def _expanded(tensor):
    """How often each value is there in a tensor that was expanded, but for the last dimension."""
    times = 1.0
    if tensor.layout is not torch.strided:
        return times
    for size, stride in list(zip(tensor.shape, tensor.stride()))[:-1]:
        times *= size if stride == 0 else 1
    return times
