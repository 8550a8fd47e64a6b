"""Prediction of a whole volume patch by patch, in memory for one slab of patches, whatever the volume's depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

Size = tuple[int, int, int]
SIGMA_SHARE = 1 / 8  # of the patch's side: the Gaussian's standard deviation, as in nnU-Net


class Volume(Protocol):
    """What is read in boxes."""

    @property
    def shape(self) -> Sequence[int]:
        """Voxels (z, y, x)."""

    def read(self, z: int, y: int, x: int, dz: int, dy: int, dx: int) -> Any:
        """A box as a numpy array."""


@dataclass(frozen=True)
class Planes:
    """Some planes that are finished."""

    first: int  # z of the first
    probabilities: Tensor  # float32 (classes, planes, y, x), on the host; each voxel's add up to 1


def starts(length: int, side: int, overlap: float) -> list[int]:
    """Where patches begin along an axis: evenly spread, the first at 0 and the last at the end.

    Args:
        length: of the volume.
        side: of the patch.
        overlap: least share of a patch that lies in the next one.
    """
    if length <= side:
        return [0]
    step = max(1, int(side * (1 - overlap)))
    count = -(-(length - side) // step) + 1
    return [round(place * (length - side) / (count - 1)) for place in range(count)]


def gaussian(side: int) -> Tensor:
    """Weights of a patch along one axis: a patch says more about its middle than about its border."""
    places = torch.arange(side, dtype=torch.float32) - (side - 1) / 2
    return torch.exp(-0.5 * (places / (side * SIGMA_SHARE)) ** 2)


def slide(
    volume: Volume,
    patch: Size,
    classify: Callable[[Tensor], Tensor],
    classes: int,
    *,
    overlap: float = 0.5,
    batch: int = 1,
    first: int = 0,
    device: torch.device | str = "cpu",
) -> Iterator[Planes]:
    """Predict planes from the first to the last; each comes as soon as no further patch reaches it.

    The weights of overlapping patches are a product over the axes, and so is their sum: only the sums of
    probabilities are kept, for the planes of one patch (classes × side × y × x × 4 bytes, on the host).

    Args:
        volume: what is read.
        patch: voxels (z, y, x); a volume that is smaller is padded with its border.
        classify: stored voxels (patches, z, y, x) on the device -> probabilities (patches, classes, z, y, x).
        classes: number of classes.
        overlap: least share of a patch that lies in the next one.
        batch: patches at once.
        first: begin with this plane: those before it are done. The same bits come as without it.
        device: of ``classify``.
    """
    depth, height, width = (int(side) for side in volume.shape)
    rows = [starts(length, side, overlap) for length, side in zip((depth, height, width), patch, strict=True)]
    weights = [gaussian(side) for side in patch]
    totals = [
        _summed(places, weight, length) for places, weight, length in zip(rows, weights, volume.shape, strict=True)
    ]
    weight = weights[0][:, None, None] * weights[1][:, None] * weights[2]
    plane_total = totals[1][:, None] * totals[2]
    sums = torch.zeros(classes, patch[0], height, width)
    base = 0  # z of the first plane of ``sums``
    on_device = weight.to(device)
    with ThreadPoolExecutor(1, "flatout-window") as reader:
        needed = [z for z in rows[0] if z + patch[0] > first]
        boxes = [(z, list(_batches(list(product(rows[1], rows[2])), batch))) for z in needed]
        coming = _read_ahead(reader, volume, patch, boxes)
        for number, (z, groups) in enumerate(boxes):
            sums = _moved(sums, z - base)
            base = z
            for group in groups:
                voxels = torch.from_numpy(next(coming)).to(device, non_blocking=True)
                made = (classify(voxels).float() * on_device).cpu()
                for (y, x), own in zip(group, made, strict=True):
                    dz, dy, dx = min(patch[0], depth - z), min(patch[1], height - y), min(patch[2], width - x)
                    sums[:, :dz, y : y + dy, x : x + dx] += own[:, :dz, :dy, :dx]
            until = needed[number + 1] if number + 1 < len(needed) else depth
            begin = max(z, first)
            if until > begin:
                done = sums[:, begin - z : until - z] / (totals[0][begin:until, None, None] * plane_total)
                yield Planes(begin, done)


def _summed(places: Sequence[int], weight: Tensor, length: int) -> Tensor:
    """Sum of the weights of all patches along an axis."""
    total = torch.zeros(length)
    for place in places:
        side = min(len(weight), length - place)
        total[place : place + side] += weight[:side]
    return total


def _moved(sums: Tensor, by: int) -> Tensor:
    """The same planes, beginning so many later."""
    if by <= 0:
        return sums
    moved = torch.zeros_like(sums)
    if by < sums.shape[1]:
        moved[:, : sums.shape[1] - by] = sums[:, by:]
    return moved


def _batches(places: list[tuple[int, int]], size: int) -> Iterator[list[tuple[int, int]]]:
    for begin in range(0, len(places), size):
        yield places[begin : begin + size]


def _read_ahead(reader: ThreadPoolExecutor, volume: Volume, patch: Size, boxes: Any) -> Iterator[np.ndarray]:
    """The patches of each group; the next group is read while the caller works on one."""
    groups = [(z, group) for z, inner in boxes for group in inner]
    waiting = reader.submit(_read, volume, patch, *groups[0]) if groups else None
    for following in (*groups[1:], None):
        assert waiting is not None
        found = waiting.result()
        waiting = reader.submit(_read, volume, patch, *following) if following else None
        yield found


def _read(volume: Volume, patch: Size, z: int, group: Sequence[tuple[int, int]]) -> np.ndarray:
    depth, height, width = volume.shape
    made = []
    for y, x in group:
        own = (min(patch[0], depth - z), min(patch[1], height - y), min(patch[2], width - x))
        box = np.asarray(volume.read(z, y, x, *own))
        missing = [(0, side - found) for side, found in zip(patch, own, strict=True)]
        made.append(np.pad(box, missing, mode="edge") if any(after for _, after in missing) else box)
    return np.stack(made)
