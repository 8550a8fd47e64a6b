"""The padding of one batch, wherever in it a padded tensor lies."""

from typing import Any, NamedTuple

import torch

from ..batches import is_mapping, values_of
from .canvases import Canvas, canvases_of
from .rows import INTEGERS, Padded, padded_rows_of

MOST_ELEMENTS = 1 << 22  # of a tensor that is compared with a value: some 20 ms
MOST_ROWS = 4096
MOST_PARTS, MOST_DEPTH = 64, 4


class BatchPadding(NamedTuple):
    """The padding of one batch.

    Attributes:
        padded: rows or canvases, by the tensor's place in the batch.
        shapes: of each tensor that could be padded.
        elements: of all tensors.
    """

    padded: "dict[str, Padded | Canvas]"
    shapes: "dict[str, tuple[int, ...]]"
    elements: int


def padding_of(batch, on_device=True):
    """Look for padded tensors in one batch.

    Raises:
        ValueError: a tensor is on a device, and may not be read there.
    """
    parts = list(named_tensors(batch, on_device=on_device))
    sequences = [(name, part) for name, part in parts if part.dim() > 1 and 0 < part.numel() <= MOST_ELEMENTS]
    vectors = [part for _, part in parts if part.dim() == 1 and part.dtype in INTEGERS]
    padded: Any = {**padded_rows_of(sequences, vectors), **canvases_of(sequences)}
    shapes = {name: tuple(part.shape) for name, part in sequences}
    return BatchPadding(padded, shapes, sum(part.numel() for _, part in parts))


def named_tensors(part, name="", depth=0, on_device=True):
    """Places and values of all tensors in a batch; lists of numbers count as tensors."""
    if isinstance(part, torch.nn.utils.rnn.PackedSequence):
        return  # it has no padding
    if isinstance(part, torch.Tensor):
        if part.layout == torch.strided and not part.is_nested and not part.is_quantized:
            if part.device.type != "cpu" and not on_device:
                raise ValueError("%s is on a device" % name)
            yield name, part.detach().cpu()
        return
    if depth > MOST_DEPTH:
        return
    if isinstance(part, (list, tuple)):
        if len(part) > 1 and all(type(value) is int for value in part):
            yield name, torch.tensor(part[:MOST_ROWS])
            return
        inner: Any = enumerate(part[:MOST_PARTS])
    elif is_mapping(part):
        inner = list(zip(part.keys(), values_of(part)))[:MOST_PARTS]
    elif hasattr(type(part), "__dataclass_fields__"):
        inner = list(getattr(part, "__dict__", {}).items())[:MOST_PARTS]
    else:
        return
    for key, value in inner:
        yield from named_tensors(value, "%s.%s" % (name, key) if name else str(key), depth + 1, on_device)
