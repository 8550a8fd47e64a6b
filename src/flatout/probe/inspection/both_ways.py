"""Both passes of a piece of the model as it is, and in another form, timed in turn between two steps."""

from typing import Any

import torch

from .. import memory_room
from ..device_rates import finish_kernels
from ..module_passes import same_random_numbers
from ..recorder import now

_ROUNDS, _BUDGET_NS = 5, 300_000_000
_LEAST_ROUNDS, _LONGEST_NS = 2, 1_500_000_000  # the first one also reserves memory and starts threads


def told(found, size, times):
    """What the record says of layers, with the times of both forms, or why they were not timed.

    Args:
        found: what is known of them.
        size: bytes of what is made for it.
        times: gives lists of nanoseconds by their names in the record.
    """
    lacking = memory_room.lacking()
    if lacking is None and size > memory_room.for_copies():
        lacking = "there is no memory for copies of them"
    if lacking is not None:
        return {**found, "skipped": lacking}
    try:
        return {**found, **times()}
    except Exception as error:
        return {**found, "skipped": "it raised %s: %s" % (type(error).__name__, str(error)[:200])}


@torch.enable_grad()
def timed(first, second, sources, other_sources=None):
    """Nanoseconds of rounds of a forward pass and its gradients, two at least unless they take long.

    Args:
        first: makes a tensor, or several.
        second: the same in another way.
        sources: of the gradients; empty: forward passes alone.
        other_sources: those of ``second``; None: the same.

    Returns:
        The times of the first way, and those of the second.
    """
    # Hooks of the user's on saved tensors, and modes, may draw numbers.
    with same_random_numbers():
        return _rounds(first, second, sources, other_sources or sources)


def _rounds(first, second, sources, other_sources):
    found: Any = ([], [])
    begun_ns = now()
    for number in range(_ROUNDS + 1):
        left_ns = (_BUDGET_NS if number > _LEAST_ROUNDS else _LONGEST_NS) - (now() - begun_ns)
        if number and left_ns < 0:
            break
        both = _passes_ns(first, sources), _passes_ns(second, other_sources)
        if number == 1:
            found = ([], [])
        for times, ns in zip(found, both):
            times.append(ns)
    return found


def _passes_ns(forward, sources):
    finish_kernels()
    start = now()
    outputs = forward()
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    if sources:
        torch.autograd.grad(outputs, sources, [torch.ones_like(one) for one in outputs], allow_unused=True)
    finish_kernels()
    return now() - start
