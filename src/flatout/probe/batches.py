"""The contents of a batch: samples, bytes, and the memory layout of its tensors."""

from typing import Any

from torch import Tensor


def samples_in(batch):
    """Samples of a batch: the first dimension of the first tensor in it; 0 when it has none."""
    if type(batch) in (list, tuple) and batch and type(batch[0]) is Tensor and batch[0].dim():
        return len(batch[0])
    for _ in range(6):
        if isinstance(batch, Tensor):
            return batch.shape[0] if batch.dim() else 1
        if isinstance(batch, (list, tuple)):
            if not batch:
                return 0
            if isinstance(batch[0], (str, bytes, int, float)):
                return len(batch)
            batch = batch[0]
        elif hasattr(batch, "values") and hasattr(batch, "keys"):
            values = list(batch.values())
            tensors = [value for value in values if isinstance(value, Tensor)]
            if not values:
                return 0
            batch = (tensors or values)[0]
        elif hasattr(batch, "num_graphs"):
            return int(getattr(batch, "num_graphs"))  # noqa: B009 - type checkers find no such attribute
        elif hasattr(batch, "__dataclass_fields__"):
            batch = _fields(batch)
        else:
            return 0
    return 0


def _fields(batch):
    """The fields of a dataclass, read without running its code: its attributes may be computed, and may raise."""
    return getattr(batch, "__dict__", {})


def weigh(batch, depth=0):
    """Bytes of all tensors of a batch, and how each is laid out."""
    if isinstance(batch, Tensor):
        size = batch.numel() * batch.element_size()
        return size, ["%s %s" % (str(batch.dtype).replace("torch.", ""), list(batch.shape))]
    if depth > 4:
        return 0, []
    parts: Any = ()
    if isinstance(batch, (list, tuple)):
        parts = batch[:64]
    elif hasattr(batch, "values") and hasattr(batch, "keys"):
        parts = list(batch.values())[:64]
    elif hasattr(batch, "__dataclass_fields__"):
        parts = list(_fields(batch).values())
    total = 0
    layout: Any = []
    for part in parts:
        size, described = weigh(part, depth + 1)
        total += size
        layout += described
    return total, layout
