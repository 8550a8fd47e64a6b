"""Communication that a training asks for by itself: gradients averaged by hand, gathered metrics, barriers.

What DistributedDataParallel exchanges happens in C++ inside the backward pass, and is part of it.
"""

import functools

import torch

from . import events, training
from .patching import is_compiling
from .recorder import REC, now, report_fault

NAMES = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)
_inside = [False]


def install():
    """Time the calls of torch.distributed."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    home = distributed.distributed_c10d
    for name in NAMES:
        original = getattr(distributed, name, None)
        if callable(original) and not getattr(original, "_flatout", False):
            wrapper = _timed(original, name)
            setattr(distributed, name, wrapper)
            if getattr(home, name, None) is original:
                setattr(home, name, wrapper)


def _timed(original, name):
    @functools.wraps(original)
    def collective(*args, **kwargs):
        # One that others are made of counts once, and in a backward pass it is part of that.
        if is_compiling() or not REC.on or _inside[0] or training.in_backward():
            return original(*args, **kwargs)
        _inside[0] = True
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            end = now()
            _inside[0] = False
            try:
                REC.emit(events.COLLECTIVE, start, end, REC.names.text(name))
            except Exception:
                report_fault(name)

    setattr(collective, "_flatout", True)  # noqa: B010 - mypy knows no attributes of functions
    return collective
