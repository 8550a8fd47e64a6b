"""Rotation and scaling of a patch around its middle, by one interpolation."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def affine_matrix(angles: tuple[float, float, float], scale: float) -> Tensor:
    """The matrix from a voxel of the patch to its place in the source, both from the middle, in (z, y, x).

    Args:
        angles: radians around z, y and x; turned around z first.
        scale: voxels of the source for one of the patch.
    """
    (c0, s0), (c1, s1), (c2, s2) = ((math.cos(angle), math.sin(angle)) for angle in angles)
    first = torch.tensor([[1, 0, 0], [0, c0, -s0], [0, s0, c0]], dtype=torch.float64)
    second = torch.tensor([[c1, 0, s1], [0, 1, 0], [-s1, 0, c1]], dtype=torch.float64)
    third = torch.tensor([[c2, -s2, 0], [s2, c2, 0], [0, 0, 1]], dtype=torch.float64)
    return third @ second @ first * scale


def warp(image: Tensor, label: Tensor, matrix: Tensor, outside: int) -> tuple[Tensor, Tensor]:
    """Resample a patch: its image linearly, its label by the nearest voxel.

    Args:
        image: float (channels, z, y, x); beyond it lies the value of its border.
        label: integers (z, y, x).
        matrix: :func:`affine_matrix`.
        outside: the label of voxels that come from beyond the patch.
    """
    size = torch.tensor(image.shape[1:], dtype=torch.float64)
    # grid_sample counts from -1 to 1 over each axis, x first.
    unit = (matrix * size[None, :] / size[:, None]).flip(0, 1)
    theta = torch.cat([unit, torch.zeros(3, 1, dtype=torch.float64)], 1)
    theta = theta.to(image.device, image.dtype, non_blocking=True)
    grid = F.affine_grid(theta[None], [1, 1, *image.shape[1:]], align_corners=False)
    moved = F.grid_sample(image[None], grid, "bilinear", "border", align_corners=False)[0]
    # grid_sample takes zero for what lies beyond: zero has to mean the outer label.
    shifted = (label.to(image.dtype) - outside)[None, None]
    nearest = F.grid_sample(shifted, grid, "nearest", "zeros", align_corners=False)[0, 0]
    return moved, (nearest + outside).round().to(label.dtype)
