"""Items of MONAI as bytes, and back: containers of tensors, plain ones and MONAI's own with their metadata.

A tensor of MONAI's lists the transforms that were applied to it, each with the ``id()`` of its object: what undoes them
looks whether it is the same. In another process those are other numbers.
"""

import io
import pickle
import sys
import types
from typing import Any

import torch

_DEEPEST = 4  # objects in one another that a transform is looked for in
_LARGEST_GAPS = 4.0  # times its elements that a tensor may reach over: it lies in memory as it did


class _Unkept(Exception):
    """A tensor whose copy would not be the same."""


def pack(item, transforms):
    """The bytes of an item that these transforms made.

    None: it holds what cannot be kept, or two tensors that share memory.
    """
    places = {id(one): place for place, one in _objects(transforms).items()}
    traced = [places.get(operation["id"]) for operation in _operations(item)]
    file = io.BytesIO()
    pickler = _Pickler(file, 5)
    try:
        pickler.dump((item, traced))
    except Exception:
        return None
    spans = sorted(pickler.spans)
    apart = all(end <= start for (_, end), (start, _) in zip(spans, spans[1:]))
    return file.getvalue() if apart else None


def unpack(stored, transforms):
    """A copy of what was packed, as if these transforms had made it."""
    item, traced = pickle.loads(stored)
    objects = _objects(transforms) if traced else {}
    for operation, place in zip(_operations(item), traced):
        if place in objects:  # else one that was made for one call
            operation["id"] = id(objects[place])
    return item


def _objects(transforms):
    """Transforms, and objects that they hold, by their place."""
    found: Any = {}
    pending: Any = [((place,), one) for place, one in enumerate(transforms)]
    while pending:
        place, one = pending.pop()
        found[place] = one
        if len(place) < _DEEPEST:
            pending += [((*place, name), part) for name, part in vars(one).items() if _is_object(part)]
    return found


def _is_object(value):
    return hasattr(value, "__dict__") and not isinstance(value, (type, types.FunctionType, types.ModuleType))


def _operations(value):
    """The entries of traces in an item, in order, which have the number of a transform."""
    parts: Any = ()
    if isinstance(value, dict):
        if "class" in value and isinstance(value.get("id"), int):
            yield value
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif isinstance(value, torch.Tensor):
        parts = value.__dict__.get("_applied_operations", ())
    for part in parts:
        yield from _operations(part)


def alike(one, other):
    """True if two items are the same, bit for bit, whichever of their parts are one object."""
    return _flat(one) == _flat(other)


def _flat(item):
    file = io.BytesIO()
    pickler = _Pickler(file, 5)
    pickler.fast = True  # what is the same twice is written twice
    pickler.dump(item)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, file, protocol):
        super().__init__(file, protocol)
        self.spans = []  # addresses of the tensors' memory

    def reducer_override(self, value):
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        if not _is_plain(value):
            raise _Unkept
        tensor = value.detach().as_subclass(torch.Tensor)
        reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        reach = reach if tensor.numel() else 0
        if reach > _LARGEST_GAPS * max(tensor.numel(), 1):
            raise _Unkept
        flat = torch.as_strided(tensor, (reach,), (1,)).numpy()
        if reach:
            self.spans.append((tensor.data_ptr(), tensor.data_ptr() + flat.nbytes))
        kind = None if type(value) is torch.Tensor else type(value)
        return _tensor, (flat, tuple(tensor.shape), tensor.stride(), kind, value.__dict__)


def _is_plain(tensor):
    monai = sys.modules.get("monai.data.meta_tensor")
    return (
        type(tensor) in (torch.Tensor, getattr(monai, "MetaTensor", None))
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.dtype is not torch.bfloat16
        and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
    )


def _tensor(flat, shape, stride, kind, attributes):
    tensor: Any = torch.from_numpy(flat).as_strided(shape, stride)
    if kind is not None:
        tensor = tensor.as_subclass(kind)
    vars(tensor).update(attributes)
    return tensor
