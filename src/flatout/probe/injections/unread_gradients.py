"""A gradient that is not computed: code that looks at its values is noticed.

Setting it to zero, asking for its form, and moving it with its module is what programs do with all gradients; any other
function of torch reads it.
"""

import sys
from typing import Any

import torch

_APPLY = torch.nn.Module._apply.__code__
_FRAMES = 6  # between it and a function of torch that it calls
_FORM = ("shape", "dtype", "device", "layout", "grad_fn", "requires_grad", "is_leaf", "is_cuda", "is_cpu", "is_sparse")
_ZEROED = {torch.Tensor.zero_, torch._foreach_zero_}
_UNREAD: Any = {torch.Tensor.detach_, torch.Tensor.requires_grad_, torch.Tensor.size, torch.Tensor.numel}
_UNREAD |= {torch.Tensor.dim, torch.Tensor.nelement, torch.Tensor.stride, torch.Tensor.element_size}
_UNREAD |= {getattr(torch.Tensor, name).__get__ for name in _FORM}


class UnreadGradient(torch.Tensor):  # type: ignore[misc]
    """In the place of a gradient.

    Attributes:
        noticed: called when code reads it.
        zeroed: it was set to zero by the program.
    """

    noticed: Any = None
    zeroed = False

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        mine = _among(args)
        if function in _ZEROED:
            for one in mine:
                one.zeroed = True
        elif function not in _UNREAD and not _is_moved():
            for one in mine[:1]:
                one.noticed()
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


def unread(gradient, noticed):
    """A stand-in with the memory of a gradient; ``noticed()`` is called once code reads it."""
    made = gradient.detach().as_subclass(UnreadGradient)
    made.noticed = noticed
    return made


def plain(gradient):
    """The gradient itself."""
    with torch._C.DisableTorchFunctionSubclass():
        return gradient.as_subclass(torch.Tensor)


def _is_moved():
    """True in ``nn.Module.to()`` and the like."""
    frame: Any = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_code is _APPLY:
            return True
        frame = frame.f_back
    return False


def _among(args):
    found = []
    for one in args:
        if isinstance(one, UnreadGradient):
            found.append(one)
        elif isinstance(one, (list, tuple)):
            found += [each for each in one if isinstance(each, UnreadGradient)]
    return found
