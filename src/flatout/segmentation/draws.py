"""What is drawn for one training patch: a function of (seed, sample number), so that a resumed run draws the same."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Chances:
    """Probability and range of each operation; the defaults are those of nnU-Net 2's trainer for isotropic patches.

    Blur and low resolution are drawn there in two steps, for the sample and for each channel: theirs are the products.
    """

    rotation: float = 0.2
    rotation_degrees: float = 30.0  # around each axis, to either side
    scaling: float = 0.2
    scaling_range: Range = (0.7, 1.4)  # voxels of the source for one of the patch: above 1 things get smaller
    noise: float = 0.1
    noise_range: Range = (0.0, 0.1)  # standard deviation, of normalised intensities
    blur: float = 0.1
    blur_range: Range = (0.5, 1.0)  # standard deviation along each axis, voxels
    brightness: float = 0.15
    brightness_range: Range = (0.75, 1.25)  # factor
    contrast: float = 0.15
    contrast_range: Range = (0.75, 1.25)  # factor of the distance to the mean
    low_resolution: float = 0.125
    low_resolution_range: Range = (0.5, 1.0)  # share of the voxels that is kept along each axis
    inverted_gamma: float = 0.1
    gamma: float = 0.3
    gamma_range: Range = (0.7, 1.5)  # exponent
    mirror: tuple[bool, bool, bool] = (True, True, True)  # z, y, x: each with probability one half


NOTHING = Chances(
    rotation=0.0,
    scaling=0.0,
    noise=0.0,
    blur=0.0,
    brightness=0.0,
    contrast=0.0,
    low_resolution=0.0,
    inverted_gamma=0.0,
    gamma=0.0,
    mirror=(False, False, False),
)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The parameters of one patch; None where an operation is not applied."""

    angles: tuple[float, float, float] | None = None  # radians around z, y and x
    scale: float | None = None
    noise: float | None = None
    blur: tuple[float, float, float] | None = None
    brightness: float | None = None
    contrast: float | None = None
    low_resolution: float | None = None
    inverted_gamma: float | None = None
    gamma: float | None = None
    mirrored: tuple[int, ...] = ()  # axes: 0 is z
    noise_seed: int = 0

    @property
    def is_pointwise(self) -> bool:
        """True if each voxel's new value depends on its old one and on the patch's histogram alone."""
        moved = (self.angles, self.scale, self.noise, self.blur, self.low_resolution)
        return all(value is None for value in moved)


def draw(chances: Chances, seed: int, sample: int) -> Draw:
    """The parameters of the sample with this number, counted over the whole training and all ranks."""
    random = np.random.Generator(np.random.Philox(key=[seed, sample]))
    # Always as many numbers in the same order: one operation more or less leaves the others as they are.
    fires = random.random(9)
    limit = math.radians(chances.rotation_degrees)
    angles = random.uniform(-limit, limit, 3)
    scale = random.uniform(*chances.scaling_range)
    noise = random.uniform(*chances.noise_range)
    blur = random.uniform(*chances.blur_range, 3)
    brightness = _around_one(random, chances.brightness_range)
    contrast = _around_one(random, chances.contrast_range)
    low_resolution = random.uniform(*chances.low_resolution_range)
    inverted_gamma = _around_one(random, chances.gamma_range)
    gamma = _around_one(random, chances.gamma_range)
    flips = random.random(3) < 0.5
    return Draw(
        angles=_three(angles) if fires[0] < chances.rotation else None,
        scale=float(scale) if fires[1] < chances.scaling else None,
        noise=float(noise) if fires[2] < chances.noise else None,
        blur=_three(blur) if fires[3] < chances.blur else None,
        brightness=brightness if fires[4] < chances.brightness else None,
        contrast=contrast if fires[5] < chances.contrast else None,
        low_resolution=float(low_resolution) if fires[6] < chances.low_resolution else None,
        inverted_gamma=inverted_gamma if fires[7] < chances.inverted_gamma else None,
        gamma=gamma if fires[8] < chances.gamma else None,
        mirrored=tuple(axis for axis in range(3) if chances.mirror[axis] and flips[axis]),
        noise_seed=int(random.integers(2**63)),
    )


def _three(values: np.ndarray) -> tuple[float, float, float]:
    first, second, third = values.tolist()
    return first, second, third


def _around_one(random: np.random.Generator, limits: Range) -> float:
    """A factor below 1 as often as one above it, whatever their widths; uniform on either side."""
    low, high = limits
    below, place = random.random(2)
    if below < 0.5 and low < 1:
        return float(low + place * (min(1.0, high) - low))
    return float(max(low, 1.0) + place * (high - max(low, 1.0)))
