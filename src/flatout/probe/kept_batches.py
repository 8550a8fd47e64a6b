"""Copies of batches to hand out again: as they came, or each joined to itself."""

import copy
from typing import Any

import torch
from torch import Tensor

from .batches import samples_in

_PLAIN = (str, bytes, int, float, complex, type(None))


class NotDoubled(Exception):
    """The batch cannot be joined to itself; the text says why."""


def copied(part: Any) -> Any:
    """A copy of a batch, or of a part of it, that shares no memory with it.

    Raises:
        Exception: from the code of the user's own types.
    """
    if type(part) is Tensor:
        return _like(part, part.detach().clone(memory_format=torch.preserve_format))
    if isinstance(part, _PLAIN):
        return part
    parts = _parts(part)
    return copy.deepcopy(part) if parts is None else _rebuilt(part, [copied(one) for one in parts])


def doubled(part: Any, size, inside=False) -> Any:
    """A batch of ``size`` samples joined to itself along the first dimension, as a copy.

    Tensors whose first dimension is ``size``, lists and tuples of ``size`` samples, and any nesting of these.

    Args:
        part: a batch, or a part of it.
        size: samples.
        inside: it is a part.

    Raises:
        NotDoubled: there is something else in it.
    """
    if type(part) is Tensor:
        if part.layout != torch.strided or part.is_nested or not part.dim() or len(part) != size:
            raise NotDoubled("a batch of %d samples holds a tensor of shape %s" % (size, list(part.shape)))
        return _like(part, torch.cat((part.detach(), part.detach())))
    parts = None if isinstance(part, _PLAIN) else _parts(part)
    if part is None:
        return None
    if not parts:
        what = "an empty %s" if parts == [] else "a part of type %s"
        raise NotDoubled("a batch holds " + what % type(part).__name__)
    may_be_samples = type(part) in (list, tuple) and len(part) == size
    try:
        made = _rebuilt(part, [doubled(one, size, inside=True) for one in parts])
    except NotDoubled:
        if may_be_samples:
            kind: Any = type(part)
            return kind([copied(one) for one in (*part, *part)])
        raise
    if inside and may_be_samples:  # such as 3 pictures of 3 channels
        raise NotDoubled("a %s of %d tensors may hold samples or parts of a sample" % (type(part).__name__, size))
    return made


def doubled_batch(batch, batch_size) -> Any:
    """The same, for a batch of a loader.

    Args:
        batch: as the loader gave it.
        batch_size: of the loader; None: it has none.

    Raises:
        NotDoubled: the batch is of no kind that can be joined to itself.
    """
    sizes = [size for size in dict.fromkeys((samples_in(batch), batch_size)) if size]
    because = NotDoubled("the samples of a batch cannot be counted")
    for size in sizes:
        try:
            return doubled(batch, size)
        except NotDoubled as error:
            because = error
    raise because


def bytes_of(part) -> int:
    """Bytes of the tensors and arrays of a batch."""
    held = getattr(part, "nbytes", None)
    if isinstance(held, int):
        return held
    parts = None if isinstance(part, _PLAIN) else _parts(part)
    return sum(bytes_of(one) for one in parts or ())


def _like(part, made):
    """The copy of a tensor, in pinned memory if the tensor is."""
    made.requires_grad_(part.requires_grad)
    return made.pin_memory() if torch.cuda.is_initialized() and not part.is_cuda and part.is_pinned() else made


def _parts(part: Any):
    """The parts of a container; None: it is none."""
    if type(part) in (list, tuple) or (isinstance(part, tuple) and hasattr(part, "_fields")):
        return list(part)
    if hasattr(part, "keys") and hasattr(part, "__setitem__") and hasattr(part, "__getitem__"):
        mapping: Any = part
        return [mapping[key] for key in mapping.keys()]  # noqa: SIM118 - not every mapping iterates over its keys
    return None


def _rebuilt(part: Any, parts) -> Any:
    """A container of the same type with other parts."""
    if hasattr(part, "_fields"):
        return part._make(parts)
    if isinstance(part, (list, tuple)):
        return type(part)(parts)
    made = copy.copy(part)
    for key, one in zip(list(part.keys()), parts):
        made[key] = one
    return made
