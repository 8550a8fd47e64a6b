"""A model's passes with its pixels channels first, as they are, and channels last, on an input of the training.

Copies of the model run between two steps, after the window; gradients, buffers and random numbers are as before.
"""

from typing import Any

import torch

from ..inspection import both_ways
from ..module_passes import ModulePasses
from ..recorder import REC

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
_LONGEST_STEP_NS = 400_000_000  # two passes in each layout at least
_COPIES = 3  # of the model and of the input, for both layouts
_CONVOLUTIONS = torch.nn.modules.conv._ConvNd


def measured(calls, step_ns):
    """For the record: both passes of each model with convolutions in both layouts, or why they were not timed.

    Args:
        calls: of the training's models in a step, and how many.
        step_ns: that a step takes.
    """
    if step_ns > _LONGEST_STEP_NS or REC.process.get("channels_last") is not False:
        return []
    try:
        return [_told(call, count) for call, count in calls if _dimensions(call.module)]
    except Exception:  # a model of a kind of its own
        return []


def _dimensions(module):
    """Those of the weights of its convolutions; empty: it has none, or one of them is laid out channels last."""
    layers = [one for one in torch.nn.Module.modules(module) if isinstance(one, _CONVOLUTIONS)]
    # As they are stored: a parametrized weight is computed when it is asked for, which may change the training.
    weights = [one._parameters.get("weight") for one in layers]
    of_pixels = [one for one in weights if type(one) is torch.nn.Parameter and one.dim() in LAYOUTS]
    return {one.dim() for one in of_pixels} if all(one.is_contiguous() for one in of_pixels) else set()


def _told(call, count):
    module, args, named = call
    layouts = [LAYOUTS[dimensions] for dimensions in sorted(_dimensions(module))]
    given = args[0] if args and isinstance(args[0], torch.Tensor) else torch.empty(0)
    found: Any = {
        "calls": count,
        "input": list(given.shape),
        "name": type(module).__qualname__,
        "layout": str(layouts[0]).rpartition(".")[2],
        "lines": [],
    }

    def times():
        own, other = ModulePasses(module, args, named), ModulePasses(module, args, named)
        other.lay_out(layouts)
        plain, joined = both_ways.timed(
            lambda: own.outputs(own.args),
            lambda: other.outputs(tuple(map(_laid_out, other.args))),
            own.sources(own.args),
            other.sources(other.args),
        )
        return {"plain_ns": plain, "joined_ns": joined}

    size = given.nbytes + sum(tensor.nbytes for tensor in torch.nn.Module.parameters(module))
    return both_ways.told(found, _COPIES * size, times)


def _laid_out(argument):
    """A tensor of pixels, channels last; anything else as it is."""
    if isinstance(argument, torch.Tensor) and argument.dim() in LAYOUTS:
        return argument.contiguous(memory_format=LAYOUTS[argument.dim()])
    return argument
