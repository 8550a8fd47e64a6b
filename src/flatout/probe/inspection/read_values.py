"""Passes of a step whose result is only read: no gradient of theirs reaches a weight, as of a test loss in each step.

A number that is read, such as ``loss.item()``, leads to the nodes of the graph that made it; those that no backward
pass has used when the step ends were for that number alone.
"""

from typing import Any

from ..recorder import REC

_READS = ("_local_scalar_dense", "item", "detach")
_MOST_NODES = 50_000  # of the graphs of a step
_MOST_LINES = 4


class ReadValues:
    """Notes what is read in a step.

    Args:
        line: file, line and function of the user's that calls the present operator, or None.
    """

    def __init__(self, line):
        self._line = line
        self.begin()

    def begin(self):
        """A step begins."""
        self._nodes: Any = {}  # number of a node -> place of the read that came to it first
        self._behind: Any = {}  # the same -> numbers of the nodes that its gradient goes on to
        self._lines: Any = []  # of the reads
        self._backward: Any = []  # operators of backward passes

    def look(self, name, args):
        """Look at an operator that has run, and is no part of a backward pass."""
        if name not in _READS or args[0].numel() != 1 or args[0].grad_fn is None:
            return
        self._lines.append(self._line())
        pending: Any = [args[0].grad_fn]
        while pending and len(self._nodes) < _MOST_NODES:
            node = pending.pop()
            if node._sequence_nr() in self._nodes:  # and what lies behind it
                continue
            self._nodes[node._sequence_nr()] = len(self._lines) - 1
            behind = [before for before, _ in node.next_functions if before is not None]
            self._behind[node._sequence_nr()] = [before._sequence_nr() for before in behind]
            pending += behind

    def look_back(self, node, made, graph):
        """Look at an operator of a backward pass, also one that only makes a view.

        Args:
            node: of the graph, whose backward pass it is a part of.
            made: the node that its own backward pass will have; None: it has none.
            graph: the backward pass makes a graph of its own.
        """
        self._backward.append((node, made, graph))

    def _used(self):
        """The nodes that a gradient came through which reaches a weight.

        That of a backward pass which makes a graph, as of a gradient in the loss, does if this graph is used.
        """
        used: Any = set()
        for node, made, graph in reversed(self._backward):
            if not graph or made in used:
                used.add(node)
        # What passes a gradient on as it is, as of a copy or a sum, has no operator of its own.
        pending = [node for node in used if node in self._behind]
        while pending:
            passed = [node for node in self._behind.get(pending.pop(), ()) if node not in used]
            used.update(passed)
            pending += passed
        return used

    def save(self, calls, ns_of):
        """Write into the record what of a whole step was only for numbers that are read.

        Args:
            calls: of the step, in order.
            ns_of: the time of a call.
        """
        if not self._nodes:
            return
        used = self._used()
        alone = {node: place for node, place in self._nodes.items() if node not in used}
        found = 0
        lines: Any = {}
        for call in calls:
            place = alone.get(call.made, alone.get(call.node))
            if place is not None:
                found += ns_of(call)
                lines[place] = lines.get(place, 0) + ns_of(call)
        most = sorted(lines, key=lambda place: -lines[place])[:_MOST_LINES]
        REC.save_process(
            read_values={
                "ns": sum(map(ns_of, calls)),
                "alone_ns": found,
                "lines": [[*self._lines[at][:3], lines[at]] for at in most if self._lines[at] and self._lines[at][0]],
            }
        )
