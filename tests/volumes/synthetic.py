"""Small volumes with labels, as people have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile

Array = npt.NDArray[Any]


def volume(shape: tuple[int, int, int] = (70, 90, 100), seed: int = 0) -> tuple[Array, Array]:
    """A noisy image, and labels: 0, 1 where it is bright, 2 (without a label) in its first planes."""
    rng = np.random.default_rng(seed)
    image = rng.normal(100, 20, shape).clip(0, 255).astype(np.uint8)
    labels = (image > 125).astype(np.uint8)
    labels[:10] = 2
    return image, labels


def write_slices(folder: Path, planes: Array) -> None:
    """A tif file for each plane."""
    folder.mkdir(parents=True)
    for number, plane in enumerate(planes):
        tifffile.imwrite(folder / f"{number:04d}.tif", plane)
