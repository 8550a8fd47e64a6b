"""Communication that a training requests explicitly: gradients it averages itself, gathered metrics, barriers.

The exchange of DistributedDataParallel happens in C++ inside the backward pass, and is part of it.
"""

import functools

import torch

from .. import events, in_place
from ..recorder import REC, now, report_fault
from ..wrap import is_compiling
from . import training

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


class _State:
    __slots__ = ("inside",)

    def __init__(self):
        self.inside = False


_state = _State()


def install():
    """Time the calls of torch.distributed."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    for name in NAMES:
        function = in_place.innermost(getattr(distributed, name, None))
        if in_place.is_python(function) and not in_place.is_instrumented(function):
            in_place.instrument(function, functools.partial(_begins, name), _ended)


def _begins(name, *args, **kwargs):
    # A collective inside another one is not counted again, and inside a backward pass it is part of that pass.
    if is_compiling() or not REC.on or _state.inside or training.in_backward():
        return None
    _state.inside = True
    return now(), name


def _ended(call, result):
    end = now()
    _state.inside = False
    start, name = call
    try:
        REC.emit(events.COLLECTIVE, start, end, REC.names.text(name))
    except Exception:
        report_fault(name)
