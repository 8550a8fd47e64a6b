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


def leaves(nodes):
    """The tensors whose gradients a backward pass through these nodes adds up."""
    return [node.variable for node in nodes if type(node).__name__ == "AccumulateGrad"]


def behind(nodes, name):
    """Ids of the nodes that those whose name begins so lead to, and of no other ones.

    Args:
        nodes: of a graph, each after those that it leads to.
        name: of a node's class.
    """
    found: Any = set()
    if not any(type(node).__name__.startswith(name) for node in nodes):
        return found
    others: Any = set()
    for node in reversed(nodes):
        begins = type(node).__name__.startswith(name)
        to: Any = found if begins or (id(node) in found and id(node) not in others) else others
        to.update(id(following) for following, _ in node.next_functions if following is not None)
    return found - others
