"""The graph of a backward pass."""

from typing import Any

import torch

MOST_NODES = 200_000  # of a graph that is walked, each about a microsecond


def nodes(tensors):
    """The nodes of the graph behind ``tensors``, each after those that it leads to.

    Raises:
        ValueError: the graph is too large.
    """
    pending: Any = []
    for root in [tensors] if isinstance(tensors, torch.Tensor) else list(tensors):
        pending.append((root.grad_fn if isinstance(root, torch.Tensor) else root.node, False))
    found: Any = []
    seen: Any = {}  # id -> node: it stays the same object while it is held
    while pending:
        node, entered = pending.pop()
        if entered:
            found.append(node)
        elif node is not None and id(node) not in seen:
            seen[id(node)] = node
            if len(seen) > MOST_NODES:
                raise ValueError("%d nodes" % len(seen))
            pending.append((node, True))
            pending.extend((following, False) for following, _ in node.next_functions)
    return found
