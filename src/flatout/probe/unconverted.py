"""Pictures of uint8 that look like tensors of float32, and are converted and normalized once somebody needs that.

Samples are stacked, handed over by workers, pinned and copied to a GPU as uint8, a quarter of the bytes. Any other
operation computes the floats first, by the very transforms that the data set would have called.
"""

import copy
import functools
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.data._utils import collate

same_on: Any = {}  # kind of device -> whether it makes the same floats as the CPU; not in there: not known yet
# Called with the kind of a device that makes others.
differs: Any = None
# Values converted at once on the CPU: the floats of several passes then stay in a core's cache.
_AT_ONCE = 1 << 16


class Unconverted(torch.Tensor):  # type: ignore[misc]
    """Stands for ``parts(pixels)``.

    Attributes:
        pixels: uint8, (..., C, H, W).
        parts: the transforms that make floats of it; they take a batch of pictures as well as one.
    """

    pixels: torch.Tensor
    parts: Any
    _floats: Any

    @staticmethod
    def __new__(cls, pixels, parts):
        """Raises RuntimeError where a device has no such tensors."""
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls, pixels.shape, strides=pixels.stride(), dtype=torch.float32, device=pixels.device
        )
        made.pixels, made.parts, made._floats = pixels, parts, None
        return made

    @property
    def floats(self):
        """What it stands for: an ordinary tensor, the same one each time."""
        if self._floats is None:
            self._floats = _converted(self.pixels, self.parts)
        return self._floats

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """Answer what needs no floats; compute them for anything else."""
        kwargs = kwargs or {}
        one, name = args[0] if args else None, getattr(function, "__name__", "")
        if type(one) is cls and one._floats is None:
            if function in _ATTRIBUTES or name in _DESCRIBES:
                with torch._C.DisableTorchFunctionSubclass():
                    return function(*args, **kwargs)
            if name in ("to", "cuda"):
                return _moved(one, function, args[1:], kwargs)
            if name == "is_pinned":
                return one.pixels.is_pinned()
            if name == "pin_memory":
                return cls(one.pixels.pin_memory(*args[1:], **kwargs), one.parts)
        if name == "stack" and args[1:] in ((), (0,)) and kwargs in ({}, {"dim": 0}):
            made = stacked(one)
            if made is not None:
                return made
        return function(*tree_map(floats_of, args), **tree_map(floats_of, kwargs))

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        """The same for calls from C++."""
        return function(*tree_map(floats_of, args), **tree_map(floats_of, kwargs or {}))

    def __reduce_ex__(self, protocol):
        """Pickle the floats: what unpickles them may not have this class."""
        return self.floats.__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        """A copy that shares no memory."""
        return copy.deepcopy(self.floats, memo)


# Read without floats. Settings may have replaced methods by then, so that these are known by name.
_ATTRIBUTES = {
    getattr(torch.Tensor, name).__get__
    for name in ("shape", "dtype", "device", "layout", "ndim", "is_cuda", "is_nested", "requires_grad")
}
_DESCRIBES = {"size", "dim", "numel", "nelement", "element_size", "__len__", "is_floating_point", "is_contiguous"}


def floats_of(one):
    """The floats of such a picture; anything else as it is."""
    return one.floats if isinstance(one, Unconverted) else one


def _moved(one, function, args, kwargs):
    """Copy the uint8 to another device, and make the floats there."""
    # The device that the arguments name, whatever their form.
    target = function(torch.empty((0,) * one.dim()), *args, **kwargs).device
    if target == one.pixels.device or not same_on.get(target.type, True):
        return function(one.floats, *args, **kwargs)
    wait = kwargs.get("non_blocking", bool(args[1:]) and args[-1] is True)
    floats = _converted(one.pixels.to(target, non_blocking=wait), one.parts)
    if target.type not in same_on and target.type != "meta":
        same_on[target.type] = torch.equal(floats.cpu(), _converted(one.pixels, one.parts))
        if not same_on[target.type]:
            if differs is not None:
                differs(target.type)
            return function(one.floats, *args, **kwargs)
    return function(floats, *args, **kwargs)


def _converted(pixels, parts):
    """Floats of one picture or of a batch of them."""
    many = _AT_ONCE // pixels[0].numel() or 1 if pixels.numel() else 1
    if pixels.dim() < 4 or pixels.device.type != "cpu" or len(pixels) <= many:
        return functools.reduce(lambda made, part: part(made), parts, pixels)
    made = torch.empty_like(pixels, dtype=torch.float32)
    for start in range(0, len(pixels), many):
        made[start : start + many] = _converted(pixels[start : start + many], parts)
    return made


def stacked(pictures, stack=torch.stack):
    """Several pictures as a batch that is not converted either; None: they do not go together."""
    if not isinstance(pictures, (list, tuple)) or not pictures or not all(type(one) is Unconverted for one in pictures):
        return None
    parts = pictures[0].parts
    if any(one._floats is not None or one.parts is not parts for one in pictures):
        return None
    return Unconverted(stack([one.pixels for one in pictures]), parts)


def _collated(batch, *, collate_fn_map=None):
    """Of ``default_collate``: into memory that other processes share, as it does with tensors."""
    plain = functools.partial(collate.collate_tensor_fn, collate_fn_map=collate_fn_map)
    made = stacked(batch, plain)
    return plain([floats_of(one) for one in batch]) if made is None else made


def _rebuilt(pixels, parts):
    return Unconverted(pixels, parts)


def _reduced(one):
    return _rebuilt, (one.pixels, one.parts)


def register():
    """Let ``default_collate`` and the queues of workers carry such pictures."""
    collate.default_collate_fn_map[Unconverted] = _collated
    ForkingPickler.register(Unconverted, _reduced)
