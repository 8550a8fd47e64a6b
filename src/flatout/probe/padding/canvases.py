"""Padded canvases of one batch: pictures or volumes of different sizes, laid on a canvas of one size.

A dark border may be data. So padding is only what a mask in the batch, or a tensor of sizes, agrees with, where all
samples lie in the same corner of their canvas or in its middle.
"""

import math
from typing import Any, NamedTuple

import torch

from .rows import INTEGERS, LENGTHS, MASK, fills

LEAST_SIDE = 8
DIMENSIONS = (2, 3)  # of a picture, of a volume
MOST_SCALE = 32  # networks make features smaller than their input by this factor at the most


class Canvas(NamedTuple):
    """Samples on a canvas; ``Padded`` says the same of rows.

    Attributes:
        evidence: ``mask`` or ``lengths``.
        length: positions of the canvas.
        lengths: positions of each sample on it.
        sides: of the canvas.
        elements: of all tensors of the batch with such a canvas.
    """

    evidence: str
    length: int
    lengths: "list[int]"
    sides: "tuple[int, ...]"
    elements: int

    @property
    # untested: only for batches of canvases that agree in all else
    def value(self):
        """None: tokens are no evidence here."""
        return None

    def ended(self):
        """Pictures are not packed."""
        return self

    def whole(self, shape):
        """Samples and positions of a batch of this shape that has no padding."""
        return shape[0], self.length

    def computed(self, shapes):
        """Whether the canvas is among results of these shapes: as it is, or smaller by a stride, or in patches."""
        scaled: Any = set()
        for scale in range(1, MOST_SCALE + 1):
            scaled.update(tuple(rounded(side / scale) for side in self.sides) for rounded in (math.floor, math.ceil))
        patches = {math.prod(sides) for sides in scaled}
        for shape in shapes:
            if shape[:1] != (len(self.lengths),):
                continue
            if len(shape) > len(self.sides) and tuple(shape[-len(self.sides) :]) in scaled:
                return True
            if len(shape) == 3 and not patches.isdisjoint(shape[1:]):
                return True
        return False


def canvases_of(tensors):
    """Canvas of each tensor that is padded.

    Args:
        tensors: pairs of a name and a tensor on the CPU.
    """
    found = {}
    for name, tensor in tensors:
        for dimensions in DIMENSIONS:
            sides = tuple(tensor.shape[-dimensions:])
            if tensor.dim() not in (dimensions + 1, dimensions + 2) or min(sides) < LEAST_SIDE:
                continue
            alike = [one for one in (_on_canvas(other, sides, len(tensor)) for _, other in tensors) if one is not None]
            kept, evidence = _masked(alike, sides), MASK
            if kept is None:
                kept, evidence = _sized(alike, sides, [other for _, other in tensors]), LENGTHS
            if kept is not None:
                elements = sum(one.numel() for one in alike)
                found[name] = Canvas(evidence, math.prod(sides), kept.flatten(1).sum(1).tolist(), sides, elements)
    return found


def _on_canvas(tensor, sides, count):
    """A tensor with this canvas as (samples, *sides), or with its channels last; None: it has another one."""
    if tensor.shape[:1] != (count,) or tuple(tensor.shape[-len(sides) :]) != sides:
        return None
    if tensor.dim() == len(sides) + 1:
        return tensor
    if tensor.dim() != len(sides) + 2:
        return None
    return tensor[:, 0] if tensor.shape[1] == 1 else tensor.movedim(1, -1)


def _masked(alike, sides):
    """The places that a mask keeps; None: no tensor is the mask of another one's samples."""
    for mask in alike:
        if mask.dim() != 1 + len(sides) or not bool(((mask == 0) | (mask == 1)).all()):
            continue
        for kept in (mask == 1, mask == 0):
            if _in_place(kept) and any(_filled(one, kept) for one in alike if one is not mask):
                return kept
    return None


def _sized(alike, sides, tensors):
    """The places inside the sizes that a tensor of (samples, sides) holds; None: no tensor does."""
    for sizes in tensors:
        if sizes.dtype not in INTEGERS or not alike:
            continue
        if tuple(sizes.shape) != (len(alike[0]), len(sides)) or int(sizes.min()) < 1:
            continue
        if bool((sizes > torch.tensor(sides)).any()):
            continue
        kept = torch.ones(len(sizes), *sides, dtype=torch.bool)
        for axis, side in enumerate(sides):
            inside = torch.arange(side) < sizes[:, axis, None]
            kept &= inside.view(len(sizes), *(side if place == axis else 1 for place in range(len(sides))))
        if not bool(kept.all()) and any(_filled(one, kept) for one in alike):
            return kept
    return None


def _filled(tensor, kept):
    return tensor.shape[: kept.dim()] == kept.shape and fills(tensor, kept)


def _in_place(kept):
    """Whether what is kept are boxes, in one corner of the canvas or in its middle, that do not all fill it."""
    if bool(kept.all()) or not bool(kept.flatten(1).any(1).all()):
        return False
    box = torch.ones_like(kept)
    anchored = True
    for axis in range(1, kept.dim()):
        others = [other for other in range(1, kept.dim()) if other != axis]
        inside = kept.sum(others) > 0
        shape = [len(kept), *(inside.shape[1] if other == axis else 1 for other in range(1, kept.dim()))]
        box &= inside.view(shape)
        before = inside.int().argmax(1)
        after = inside.flip(1).int().argmax(1)
        middle = (before - after).abs() <= 1
        anchored = anchored and any(bool(one.all()) for one in (before == 0, after == 0, middle))
    return anchored and bool((box == kept).all())
