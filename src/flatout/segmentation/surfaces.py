"""Distances between predicted and true surfaces of each class, by MONAI's metrics."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE_VOXELS = 2.0  # of surface Dice, in voxels of the finest axis
MOST_VOXELS = 512**3  # a distance map takes 8 bytes a voxel, several times
PACKAGES = ("monai", "scipy")


@dataclass(frozen=True)
class SurfaceScore:
    """Scores of one class; NaN where it is neither predicted nor there, HD95 also where only one of the two holds."""

    surface_dice: float  # share of both surfaces within the tolerance of the other one
    hd95: float  # 95th percentile of the distances between them, in units of the spacing


def lacking(voxels: int) -> str | None:
    """Why surfaces cannot be compared; None: they can."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: pip install 'flatout[scores]'"
    if voxels > MOST_VOXELS:
        return f"{voxels:,} voxels are more than {MOST_VOXELS:,}: distances would not fit into memory"
    return None


def surface_scores(
    predicted: Tensor, labels: Tensor, classes: int, ignore: int, spacing: Sequence[float]
) -> list[SurfaceScore]:
    """Score each class but the first.

    Args:
        predicted: class indices (z, y, x).
        labels: of the same shape; where they are ``ignore`` neither of the two counts as any class.
        classes: number of classes.
        ignore: a label that is no class.
        spacing: of the voxels, (z, y, x).
    """
    from monai.metrics.hausdorff_distance import compute_hausdorff_distance
    from monai.metrics.surface_dice import compute_surface_dice

    counted = labels != ignore
    found = []
    units = [float(size) for size in spacing]  # MONAI refuses [0.5, 1]
    for index in range(1, classes):
        made, true = ((part == index) & counted for part in (predicted, labels))
        if not (made.any() and true.any()):
            empty = not made.any() and not true.any()
            found.append(SurfaceScore(math.nan if empty else 0.0, math.nan))
            continue
        pair = made[None, None], true[None, None]
        tolerance = TOLERANCE_VOXELS * min(units)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of MONAI's own calls of itself
            within = compute_surface_dice(*pair, [tolerance], include_background=True, spacing=units)
            far = compute_hausdorff_distance(*pair, include_background=True, percentile=95, spacing=units)
        found.append(SurfaceScore(float(torch.as_tensor(within)), float(torch.as_tensor(far))))
    return found
