"""What a module gives for a batch as bytes of each sample, and back."""

import pickle
from typing import Any, NamedTuple

import torch

from ..module_passes import tensors_in
from .object_state import PLAIN

# Of the largest value: that two results of one sample may differ by, for batches of other samples.
_TOLERANCE, _HALF_TOLERANCE = 1e-4, 3e-2
_HALVES = (torch.float16, torch.bfloat16)


class NotByRows(Exception):
    """A value that is not made of a row for each sample; the text says why."""


class Form:
    """The form of a result: a tensor, or tensors in a list, a tuple or a dictionary, all with the samples in front.

    Args:
        made: the result.
        count: of samples.
        others: tensors that it may not share memory with.

    Raises:
        NotByRows: it has no such form.
    """

    def __init__(self, made, count, others):
        self._made = _without_values(made)
        found = tensors_in(made)
        if not found or any(not one.dim() or len(one) != count for one in found):
            raise NotByRows("it gives something else than tensors with a row for each sample")
        if any(one.requires_grad or one.layout is not torch.strided for one in found):
            raise NotByRows("what it gives has gradients")
        memory = [one.untyped_storage().data_ptr() for one in found if one.numel()]
        if len({*memory}) < len(memory) or not {one.untyped_storage().data_ptr() for one in others}.isdisjoint(memory):
            raise NotByRows("what it gives shares memory with something else")
        self._kinds = [(one.dtype, one.device, _is_channels_last(one)) for one in found]

    def rows(self, made):
        """The bytes of each sample."""
        parts = [(tuple(one.shape[1:]), bytes_of_rows(one)) for one in tensors_in(made)]
        for place in range(len(parts[0][1])):
            yield pickle.dumps([(shape, bytes(rows[place])) for shape, rows in parts], 5)

    def joined(self, stored):
        """The result of these samples; None: their shapes differ."""
        rows = [pickle.loads(bytes(row)) for row in stored]
        made: Any = []
        for place, (dtype, device, channels_last) in enumerate(self._kinds):
            shapes = {row[place][0] for row in rows}
            if len(shapes) > 1:
                return None
            one = torch.empty((len(rows), *shapes.pop()), dtype=dtype)
            data = bytearray(b"".join(row[place][1] for row in rows))
            if data:
                one.view(-1).view(torch.uint8).copy_(torch.frombuffer(data, dtype=torch.uint8))
            one = one.to(device)
            made.append(one.contiguous(memory_format=torch.channels_last) if channels_last else one)
        return _with_values(self._made, iter(made))


def close(one, other, half):
    """True if two results are the same within the tolerance; ``half``: parts of them were computed in 16 bits."""
    for mine, theirs in zip(tensors_in(one), tensors_in(other)):
        if mine.shape != theirs.shape:
            return False
        if not mine.is_floating_point():
            if not torch.equal(mine, theirs):
                return False
            continue
        tolerance = _HALF_TOLERANCE if half or mine.dtype in _HALVES else _TOLERANCE
        most = float(theirs.abs().nan_to_num(0.0, 0.0, 0.0).amax()) if theirs.numel() else 0.0
        if not torch.allclose(mine, theirs, rtol=0.0, atol=tolerance * most, equal_nan=True):
            return False
    return True


def bytes_of_rows(tensor):
    """The bytes of each row, as an array of two dimensions."""
    flat = tensor.detach().cpu().contiguous().flatten(1) if tensor.dim() > 1 else tensor.detach().cpu()[:, None]
    return flat.contiguous().view(torch.uint8).numpy() if flat.shape[1] else [b""] * len(flat)


class _Value:
    """Stands for a tensor in a form."""


class _Mapping(NamedTuple):
    kind: Any
    parts: Any


def _without_values(made):
    if isinstance(made, torch.Tensor):
        if type(made) is not torch.Tensor:
            raise NotByRows("it gives a tensor of a class of its own")
        return _Value()
    if type(made) in (list, tuple):
        return type(made)(map(_without_values, made))
    if isinstance(made, dict) and (type(made) is dict or hasattr(made, "to_tuple")):  # outputs of transformers
        return _Mapping(type(made), {name: _without_values(one) for name, one in made.items()})
    if type(made) in PLAIN:
        return made
    raise NotByRows("it gives an object of class %s" % type(made).__name__)


def _with_values(form, values):
    if type(form) is _Value:
        return next(values)
    if type(form) is _Mapping:
        parts = {name: _with_values(one, values) for name, one in form.parts.items()}
        return parts if form.kind is dict else form.kind(**parts)
    if type(form) in (list, tuple):
        return type(form)([_with_values(one, values) for one in form])
    return form


def _is_channels_last(tensor):
    return tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)
