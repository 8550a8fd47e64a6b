"""Gradients that a backward pass computes, and that are set to zero before anything uses them.

A generator's loss goes back through the discriminator's weights, an actor's through the critic's, an attack's through
the model's: the next ``zero_grad()`` discards what that took. Passes are known by the line that calls them. A gradient
is used by an optimizer that steps with it, and by any code that reads ``parameter.grad``.
"""

from typing import Any

from . import backward_graph, gradient_uses
from .gradients import hooked, names_of

LEAST_PASSES = 2  # from one line, whose gradients were discarded
MOST_LINES = 4  # in the record


class _Line:
    """What backward passes from one line computed.

    Attributes:
        passes: that were looked at.
        elements: of all gradients that one computes, the latest one's.
        discarded: id of each parameter -> passes whose gradient was set to zero before it was used.
        used: ids of the parameters whose gradients were used.
    """

    def __init__(self):
        self.passes = self.elements = 0
        self.discarded: Any = {}
        self.used: Any = set()


class DiscardedGradients:
    """The discarded gradients of a training, looked for until what ``watch`` returned is called.

    Attributes:
        failed: why that is not known; None: it is.
        kept_because: why no backward pass can be asked to leave them out; None: one can.
        parameters: that passes were seen to compute gradients of, by their ids.
        pending: id of a parameter -> lines whose gradients it holds -> passes.
    """

    def __init__(self):
        self.failed: Any = None
        self.kept_because: Any = None
        self._lines: Any = {}  # (file, line, function) of the caller -> _Line
        self.parameters: Any = {}  # id -> parameter: it stays the same object while it is held
        self.pending: Any = {}
        self._left_out: Any = None  # (file, line, function) -> ids of parameters; None: all gradients are computed

    def watch(self):
        """Look at each backward pass and at what becomes of its gradients; returns what ends that."""
        return gradient_uses.watch(self)

    def look(self, tensors):
        """Note what a backward pass computes; returns its leaves but those left out, None for all of them."""
        where = gradient_uses.calling_line()
        if where is None or self.failed:
            return None
        leaves = backward_graph.leaves(backward_graph.nodes(tensors))
        left_out = self._left_out.get(where, ()) if self._left_out else ()
        others = [leaf for leaf in leaves if id(leaf) not in left_out]
        line = self._lines.setdefault(where, _Line())
        line.passes += 1
        line.elements = sum(leaf.numel() for leaf in leaves)
        for leaf in others:
            self.parameters[id(leaf)] = leaf
            passes = self.pending.setdefault(id(leaf), {})
            passes[where] = passes.get(where, 0) + 1
        return others if 0 < len(others) < len(leaves) else None

    def zeroed(self, parameters):
        """Their gradients are set to zero, or replaced."""
        for parameter in parameters:
            for where, passes in self.pending.pop(id(parameter), {}).items():
                discarded = self._lines[where].discarded
                discarded[id(parameter)] = discarded.get(id(parameter), 0) + passes

    def used(self, parameters):
        """An optimizer steps with their gradients, or other code reads them."""
        for parameter in parameters:
            for where in self.pending.pop(id(parameter), ()):
                self._lines[where].used.add(id(parameter))

    def fault(self, error):
        """A graph could not be read: it has a node of some extension, or too many."""
        self.failed = "the graph of a backward pass could not be read (%s)" % type(error).__name__
        self._lines, self.pending, self.parameters = {}, {}, {}

    def in_vain(self):
        """Line -> ids of the parameters whose gradients from there were discarded whenever that was seen.

        Those of other lines are used: else other code may take gradients in a way that is not seen here.
        """
        used = set().union(*(line.used for line in self._lines.values()))
        found = {}
        for where, line in self._lines.items():
            keys = {
                key
                for key, times in line.discarded.items()
                if times >= LEAST_PASSES and key in used - line.used and not hooked(self.parameters[key])
            }
            if keys:
                found[where] = keys
        return found

    def avoidable(self):
        """True if there are gradients that backward passes can be asked to leave out."""
        return not self.failed and not self.kept_because and bool(self.in_vain())

    def leave_out(self):
        """Make backward passes compute the other gradients only; returns what undoes it."""
        self._left_out = self.in_vain()

        def compute_all():
            self._left_out = None

        return compute_all

    def described(self):
        """What the record says: elements of discarded gradients, of all, lines that compute them, and what was seen."""
        if self.failed:
            return {"failed": self.failed}
        found, elements = [], 0
        for where, keys in self.in_vain().items():
            line = self._lines[where]
            size = sum(self.parameters[key].numel() for key in keys)
            elements += line.passes * size
            found.append([*where, line.passes, size, line.elements, names_of(keys)])
        found.sort(key=lambda one: -one[3] * one[4])
        of = sum(line.passes * line.elements for line in self._lines.values())
        passes = [sum(line.passes for line in self._lines.values()), len(self._lines)]
        return {
            "elements": elements,
            "of": of,
            "lines": found[:MOST_LINES],
            "passes": passes,
            "not_tried": self.kept_because,
        }
