"""Products with rows that repeat: ``Linear(cat([state.repeat(n, 1), inputs]))``, or of the two ends of each edge.

The product of a row that is there n times is computed n times. As a product goes by columns, its weight can be split:
one part is multiplied with each state once, and what comes out is repeated, or taken by index. Columns that the same
weight has multiplied before in a step, such as the inputs of attention at each time step, need no product either.
A convolution whose kernel has size 1 is a product, too: its rows are the places, its columns the channels.
"""

from typing import Any

import torch

from ..module_passes import tensors_in
from ..recorder import REC
from ..replacements import conv_forms

_PRODUCTS = {"mm": 0, "addmm": 1}  # place of the rows among the arguments
_COPIES = ("clone", "contiguous", "_to_copy")
_SUMS = ("add", "sub")
_FORMS = ("_unsafe_view", "_reshape_alias")  # show a tensor in another form, and are not said to
_LEAST_TIMES = 2.0
_LEAST_NEEDLESS = 0.2  # of a product
_MOST_LINES = 4


class _Rows:
    """A tensor whose rows are put together of parts.

    Attributes:
        parts: of a row: its columns, how often each of its values is there, and the number of those. The columns of a
            single part are None until it is used: any dimension that was not repeated may be the one of columns.
        elements: of the whole: a part of it may hold no value twice.
        version: of the memory: what is written to it later repeats no more.
        columns: of the dimensions that may be the one of columns, their strides in memory and their sizes.
        calls: places of the calls that made it.
        nodes: of the graph, that their backward passes have.
    """

    def __init__(self, parts, tensor, dimensions, calls=(), nodes=()):
        self.parts, self.elements, self.version = parts, tensor.numel(), _version(tensor)
        self.columns = {(tensor.stride(at), tensor.shape[at]) for at in dimensions}
        self.calls, self.nodes = list(calls), list(nodes)

    def holds(self, tensor):
        """Whether a tensor with this memory is all of it, as it was made."""
        return tensor.numel() == self.elements and _version(tensor) == self.version

    def has(self, tensor, dimension):
        """Whether a dimension of it may be the one of columns: two that became one hold several rows."""
        return (tensor.stride(dimension), tensor.shape[dimension]) in self.columns

    def along(self, tensor, dimension):
        """The parts along a dimension of a tensor with this memory; None: its columns lie in another one."""
        if not self.holds(tensor) or not self.has(tensor, dimension):
            return None
        size = tensor.shape[dimension]
        parts = [(size if width is None else width, times, number) for width, times, number in self.parts]
        return parts if sum(part[0] for part in parts) == size else None


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
            if address(args[first]) and args[first].stride(-1) == 1:
                self._multiplied(args[first], args[first + 1], 1, place, node)
        elif name == "convolution" and _is_pointwise(args):
            self._multiplied(args[0], args[1], 1, place, node)
        made = None
        if name == "cat":
            made = self._joined(args, result)
        elif name in _COPIES:
            made = self._copied(args[0], result)
        elif name in _SUMS:
            made = self._combined(args, result)
        elif address(result):
            made = self._taken(name, args, result)
        self.forget(result)
        if made is not None and made.columns:
            made.calls.append(place)
            made.nodes.append(node)
            self._rows[address(result)] = made

    def forget(self, new):
        """These tensors were written to, or are new in memory that may have been another one's before."""
        for tensor in tensors_in(new):
            self._rows.pop(address(tensor), None)

    def _taken(self, name, args, result):
        """What was repeated, or taken by index."""
        if name not in _TAKES or not address(args[0]) or not args[0].dim():
            return None
        kept = _TAKES[name](args, result)
        times = result.numel() / args[0].numel()
        if times < _LEAST_TIMES:
            return None
        return _Rows([(None, times, self._number(args[0]))], result, kept)

    def _copied(self, source, result):
        """The same in another order, or an expanded tensor written out."""
        if not address(source) or source.shape != result.shape:
            return None
        known = self._rows.get(address(source))
        dimensions = range(source.dim())
        if known is not None:
            if not known.holds(source):
                return None
            columns = [at for at in dimensions if known.has(source, at)]
            return _Rows(known.parts, result, columns, known.calls, known.nodes)
        times = _expanded(source)
        if times < _LEAST_TIMES:
            return None
        return _Rows([(None, times, self._number(source))], result, [at for at in dimensions if source.stride(at)])

    def _joined(self, args, result):
        tensors, dimension = args[0], args[1] if len(args) > 1 else 0
        if not address(result):
            return None
        dimension %= result.dim()
        parts, calls, nodes = [], [], []
        for tensor in tensors:
            if tensor.dim() != result.dim():  # an empty vector, which is left out
                continue
            known = self._rows.get(address(tensor))
            found = known.along(tensor, dimension) if known is not None else None
            if found is not None:
                parts += found
                calls += known.calls
                nodes += known.nodes
            else:
                parts.append((tensor.shape[dimension], _expanded(tensor, dimension), self._number(tensor)))
        return _Rows(parts, result, [dimension], calls, nodes)

    def _combined(self, args, result):
        """A sum or difference of what repeats: the weight may multiply each of the two before, and has to."""
        if not address(result) or not all(isinstance(one, torch.Tensor) and address(one) for one in args[:2]):
            return None
        needed, dimensions, calls, nodes = 0.0, set(range(result.dim())), [], []
        for one in args[:2]:
            times, kept = 1.0, list(range(one.dim()))
            known = self._rows.get(address(one))
            if known is not None and len(known.parts) == 1 and known.holds(one):
                times = known.parts[0][1]
                kept = [at for at in kept if known.has(one, at)]
                calls += known.calls
                nodes += known.nodes
            before = result.dim() - one.dim()
            dimensions &= {before + at for at in kept if one.shape[at] == result.shape[before + at] and one.stride(at)}
            needed += one.numel() / (times * _expanded(one) * result.numel())
        if needed * _LEAST_TIMES > 1.0:
            return None
        return _Rows([(None, 1.0 / needed, self._number(result))], result, dimensions, calls, nodes)

    def _multiplied(self, rows, weight, dimension, place, node):
        known = self._rows.get(address(rows))
        parts = known.along(rows, dimension) if known is not None else None
        if parts is None:
            return
        needless, first = 0.0, 0
        for width, times, number in parts:
            key = self._number(weight), first, number, torch.is_grad_enabled()
            needless += width / rows.shape[dimension] * (1.0 if key in self._seen else 1.0 - 1.0 / times)
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
    if not plain or tensor.is_nested or not tensor.numel():
        return 0
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # zeros that were never written, as forward-mode derivatives have them
        return 0


def _version(tensor):
    """How often its memory was written to; 0 where that is not counted."""
    return 0 if tensor.is_inference() else tensor._version


def _expanded(tensor, besides=None):
    """How often each value is there in a tensor that was expanded, but for one dimension."""
    times = 1.0
    if tensor.layout is not torch.strided:
        return times
    for at, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        times *= size if stride == 0 and at != besides else 1
    return times


def _kept_by_repeat(args, result):
    before = result.dim() - args[0].dim()
    return [before + at for at, times in enumerate(args[1][before:]) if times == 1]


def _kept_by_index(args, result):
    indexed = [at for at, one in enumerate(args[1]) if one is not None]
    return range(result.dim() - (args[0].dim() - 1 - indexed[-1]), result.dim()) if indexed else ()


def _kept_by_selection(args, result):
    return [at for at in range(result.dim()) if at != args[1] % result.dim()]


def _kept_by_gathering(args, result):
    """Dimensions in which one index holds for all values."""
    return [at for at, stride in enumerate(args[2].stride()) if not stride and args[2].shape[at] == args[0].shape[at]]


def _kept_by_embedding(args, result):
    return [result.dim() - 1]


# Dimensions of what an operator repeats or takes, that are as in its source.
_TAKES: Any = {
    "repeat": _kept_by_repeat,
    "index": _kept_by_index,
    "index_select": _kept_by_selection,
    "gather": _kept_by_gathering,
    "embedding": _kept_by_embedding,
}


def _is_pointwise(args):
    """Whether a convolution is a product of channels at each place."""
    source, weight = args[:2]
    plain = not args[conv_forms.TRANSPOSED] and args[conv_forms.GROUPS] == 1
    still = set(args[conv_forms.STRIDE]) == {1} and set(args[conv_forms.PADDING]) == {0}
    return plain and still and source.dim() == weight.dim() and set(weight.shape[2:]) == {1}
