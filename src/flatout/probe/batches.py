"""The contents of a batch: samples, bytes, and the memory layout of its tensors.

A batch may be an object of the user's, any method of which may raise: what it holds is then unknown.
"""

import copy
from typing import Any

import torch
from torch import Tensor

_UNSEEN = torch._C.DisableTorchFunction  # the program's modes and subclasses of tensors do not see what is asked here


def samples_in(batch):
    """Samples of a batch: the first dimension of the first tensor in it; 0 when it has none."""
    try:
        with _UNSEEN():
            if type(batch) in (list, tuple) and batch and type(batch[0]) is Tensor and batch[0].dim():
                return len(batch[0])
            return _samples_in(batch)
    except Exception:
        return 0


def _samples_in(batch):
    for _ in range(6):
        if isinstance(batch, Tensor):
            return batch.shape[0] if batch.dim() else 1
        if isinstance(batch, (list, tuple)):
            if not batch:
                return 0
            if isinstance(batch[0], (str, bytes, int, float)):
                return len(batch)
            batch = batch[0]
        elif is_mapping(batch):
            values = values_of(batch)
            tensors = [value for value in values if isinstance(value, Tensor)]
            if not values:
                return 0
            batch = (tensors or values)[0]
        elif hasattr(type(batch), "num_graphs"):
            return int(getattr(batch, "num_graphs"))  # noqa: B009 - type checkers find no such attribute
        elif hasattr(type(batch), "__dataclass_fields__"):
            batch = _fields(batch)
        else:
            return 0
    return 0


def is_mapping(batch):
    """Whether its class is one of mappings; attributes that an object makes up as they are asked for do not count."""
    return hasattr(type(batch), "values") and hasattr(type(batch), "keys")


def values_of(mapping):
    """The values of a mapping; a dictionary's own, whatever its subclass does."""
    return list(dict.values(mapping) if isinstance(mapping, dict) else mapping.values())


def _fields(batch):
    """The fields of a dataclass, read without running its code: its attributes may be computed, and may raise."""
    return getattr(batch, "__dict__", {})


def weigh(batch, depth=0):
    """Bytes of all tensors of a batch, and how each is laid out."""
    try:
        with _UNSEEN():
            return _weigh(batch, depth)
    except Exception:
        return 0, []


def _stored(tensor):
    """The tensors that hold the values of one: of a sparse tensor, its values and where they are."""
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


def _weigh(batch, depth):
    if isinstance(batch, Tensor):
        size = sum(part.numel() * part.element_size() for part in _stored(batch))
        shape = "nested" if batch.is_nested else list(batch.shape)
        return size, ["%s %s" % (str(batch.dtype).replace("torch.", ""), shape)]
    if depth > 4:
        return 0, []
    parts: Any = ()
    if isinstance(batch, (list, tuple)):
        parts = batch[:64]
    elif is_mapping(batch):
        parts = values_of(batch)[:64]
    elif hasattr(type(batch), "__dataclass_fields__"):
        parts = list(_fields(batch).values())
    total = 0
    layout: Any = []
    for part in parts:
        size, described = weigh(part, depth + 1)
        total += size
        layout += described
    return total, layout


def tensors_in(part):
    """The tensors of a batch, in order."""
    if isinstance(part, Tensor):
        yield part
        return
    inner: Any = ()
    if is_mapping(part):
        inner = values_of(part)
    elif isinstance(part, (list, tuple)):
        inner = part
    elif hasattr(type(part), "__dataclass_fields__"):
        inner = _fields(part).values()
    for one in inner:
        yield from tensors_in(one)


def rebuilt(part, change):
    """A batch of the same types, with ``change(tensor)`` in the place of each tensor; other values stay."""
    if isinstance(part, Tensor):
        return change(part)
    if is_mapping(part):
        made = copy.copy(part)
        for key in list(part.keys()):
            made[key] = rebuilt(part[key], change)
        return made
    if isinstance(part, tuple):
        made = [rebuilt(one, change) for one in part]
        return type(part)(*made) if hasattr(part, "_fields") else type(part)(made)
    if isinstance(part, list):
        return [rebuilt(one, change) for one in part]
    if hasattr(type(part), "__dataclass_fields__"):
        made = copy.copy(part)
        for name, one in vars(part).items():
            made.__dict__[name] = rebuilt(one, change)
        return made
    return part
