"""How many operators take what a node of a graph has made, in a step that is watched."""

import sys
from collections import Counter
from typing import Any

import torch

# Nodes of views, and of copies that hold the same values: what takes them takes what they were made of.
VIEW_NAMES = (
    *("View", "UnsafeView", "ReshapeAlias", "Expand", "Clone", "Transpose", "Permute", "Squeeze", "Unsqueeze"),
    *("T", "Alias", "ToCopy"),
)
VIEWS = frozenset("%sBackward%d" % (name, number) for name in VIEW_NAMES for number in (0, 1))
# Copies, since who takes them counts, and what only takes the shape.
_NOT_COUNTED = ("_unsafe_view", "clone", "_to_copy", "empty_like", "zeros_like", "ones_like", "rand_like")
_ATTENTION = "multi_head_attention_forward"
_MOST_FRAMES = 12
_MOST_VIEWS = 12  # one after the other


class GraphUses:
    """Counts them."""

    def __init__(self):
        self.begin()

    def begin(self):
        """A step begins."""
        self._uses: Any = Counter()

    def look(self, name, args):
        """Note what an operator takes that is no part of a backward pass, and makes more than a view."""
        if name in _NOT_COUNTED or (name == "mean" and _averages_heads()):
            return
        taken = set()
        for one in args:
            for tensor in one if isinstance(one, (list, tuple)) else (one,):
                if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                    node = behind_views(tensor.grad_fn)
                    if node is not None:
                        taken.add(node._sequence_nr())
        self._uses.update(taken)

    def once(self, number):
        """Whether one operator at most took what this node has made."""
        return self._uses[number] < 2


def _averages_heads():
    """Whether torch's own attention averages its weights, which it does unless it is told not to."""
    frame: Any = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame is None or frame.f_code.co_name == _ATTENTION:
            break
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == _ATTENTION


def behind_views(node):
    """The node whose values a view shows; None: there is none."""
    for _ in range(_MOST_VIEWS):
        if node is None or node.name() not in VIEWS:
            break
        node = node.next_functions[0][0]
    return node
