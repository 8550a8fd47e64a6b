"""Crops of images: random for training, the middle for validation.

The draw for an image depends on (seed, epoch, index) alone: not on threads, order, ranks, or where a run was
resumed.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from flatout.loader.interfaces import Box

ATTEMPTS = 10  # as torchvision's RandomResizedCrop


def generator(seed: int, epoch: int, index: int, repeat: int = 0) -> random.Random:
    """The generator of one image in one epoch; ``repeat``: earlier occurrences in the epoch."""
    return random.Random(repeat << 128 | (seed & 0xFFFFFFFF) << 96 | epoch << 64 | index)


@dataclass(frozen=True)
class RandomCrop:
    """A random box: area uniform in ``scale`` of the image, log of the aspect ratio uniform in ``ratio``.

    The distribution of torchvision's RandomResizedCrop: ten attempts, then the largest middle box within ``ratio``.
    """

    draw: random.Random
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def box(self, width: int, height: int) -> Box:
        """The crop of an upright image of this size, whole pixels."""
        area = width * height
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(ATTEMPTS):
            target = area * self.draw.uniform(*self.scale)
            ratio = math.exp(self.draw.uniform(low, high))
            w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
            if 0 < w <= width and 0 < h <= height:
                return Box(self.draw.randint(0, width - w), self.draw.randint(0, height - h), w, h)
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        w, h = min(width, round(height * ratio)), min(height, round(width / ratio))
        return Box((width - w) // 2, (height - h) // 2, w, h)


@dataclass(frozen=True)
class CentreCrop:
    """The middle square: ``share`` of the short side.

    The same part as resizing the short side to ``size / share`` and cropping ``size`` from the middle.
    ``squash``: ``share`` of either side, whatever the aspect ratio becomes.
    """

    share: float = 0.875
    squash: bool = False

    def box(self, width: int, height: int) -> Box:
        """The crop of an upright image of this size, whole pixels."""
        if self.squash:
            w, h = max(1, round(self.share * width)), max(1, round(self.share * height))
        else:
            w = h = max(1, round(self.share * min(width, height)))
        return Box((width - w) // 2, (height - h) // 2, w, h)
