"""Random changes of colour and shape per image, on its uint8 pixels after crop and resize.

The operations are torchvision's; the random numbers are from the image's own generator, since torch's is shared by all
threads: pixels remain a function of (seed, epoch, index).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

BLUR_SIGMA = (0.1, 2.0)  # pixels
MAGNITUDES = 31  # of randaugment and trivialaugment
AUTO_MAGNITUDES = 10  # of autoaugment's published policies


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random changes to an image; none by default."""

    vertical_flip: float = 0.0  # probabilities
    policy: str = "none"  # randaugment, trivialaugment, autoaugment, augmix or threeaugment
    magnitude: int = 9  # of randaugment, 0 to 30
    deviation: float = 0.0  # standard deviation of that
    probability: float = 1.0  # of each operation of randaugment
    operations: int = 2  # of randaugment
    jitter: float = 0.0  # largest relative change of brightness, contrast and saturation
    jitter_probability: float = 1.0
    grey: float = 0.0
    blur: float = 0.0

    def apply(self, pixels: Tensor, draw: random.Random) -> None:
        """Change ``pixels``, uint8 (height, width, 3), in place."""
        if self == NOTHING:
            return
        before = image = pixels.permute(2, 0, 1).contiguous()
        if self.vertical_flip and draw.random() < self.vertical_flip:
            image = functional.vertical_flip(image)
        image = self._by_policy(image, draw)
        if self.jitter and draw.random() < self.jitter_probability:
            changes = [functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation]
            draw.shuffle(changes)
            for change in changes:
                image = change(image, draw.uniform(1 - self.jitter, 1 + self.jitter))
        if self.grey and draw.random() < self.grey:
            image = functional.rgb_to_grayscale(image, num_output_channels=3)
        if self.blur and draw.random() < self.blur:
            image = _blurred(image, draw)
        if image is not before:
            pixels.copy_(image.permute(1, 2, 0))

    def _by_policy(self, image: Tensor, draw: random.Random) -> Tensor:
        if self.policy == "none":
            return image
        if self.policy == "autoaugment":
            for name, probability, place in draw.choice(_AUTO._policies):
                if draw.random() < probability:
                    image = _operate(_AUTO, image, name, AUTO_MAGNITUDES, place, draw)
            return image
        if self.policy == "augmix":
            return _mixed_chains(image, draw)
        if self.policy == "threeaugment":
            return _one_of_three(image, draw)
        made = _RANDOM if self.policy == "randaugment" else _TRIVIAL
        names = list(made._AUGMENTATION_SPACE)
        for _ in range(self.operations if self.policy == "randaugment" else 1):
            if self.policy == "randaugment":
                if draw.random() >= self.probability:
                    continue
                place = self._magnitude(draw)
            else:
                place = draw.randrange(MAGNITUDES)
            image = _operate(made, image, draw.choice(names), MAGNITUDES, place, draw)
        return image

    def _magnitude(self, draw: random.Random) -> int:
        drawn = draw.gauss(self.magnitude, self.deviation) if self.deviation else self.magnitude
        return round(min(max(drawn, 0), MAGNITUDES - 1))


NOTHING = Augmentation()
_AUTO, _RANDOM, _TRIVIAL, _CHAINS = v2.AutoAugment(), v2.RandAugment(), v2.TrivialAugmentWide(), v2.AugMix()


def _mixed_chains(image: Tensor, draw: random.Random) -> Tensor:
    """AugMix (Hendrycks 2019) with torchvision's operations and defaults: the mean of the image and random chains."""
    names = list(_CHAINS._AUGMENTATION_SPACE if _CHAINS.all_ops else _CHAINS._PARTIAL_AUGMENTATION_SPACE)
    shares = [draw.gammavariate(_CHAINS.alpha, 1.0) for _ in range(_CHAINS.mixture_width)]  # Dirichlet, once divided
    own = draw.betavariate(_CHAINS.alpha, _CHAINS.alpha)
    mixed = image * own
    for share in shares:
        chain = image
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(_CHAINS.severity)
            chain = _operate(_CHAINS, chain, draw.choice(names), _CHAINS._PARAMETER_MAX, place, draw)
        mixed += chain * ((1 - own) * share / sum(shares))
    return mixed.to(torch.uint8)


def _one_of_three(image: Tensor, draw: random.Random) -> Tensor:
    """3-Augment (Touvron 2022, DeiT III): grey, solarized or blurred."""
    which = draw.randrange(3)
    if which == 0:
        return functional.rgb_to_grayscale(image, num_output_channels=3)
    return functional.solarize(image, 128) if which == 1 else _blurred(image, draw)


def _blurred(image: Tensor, draw: random.Random) -> Tensor:
    sigma = draw.uniform(*BLUR_SIGMA)
    reach = min(math.ceil(2 * sigma), min(image.shape[1:]) - 1)  # reflect the border
    return functional.gaussian_blur(image, [2 * reach + 1] * 2, [sigma] * 2)


def _operate(made: Any, image: Tensor, name: str, bins: int, place: int | None, draw: random.Random) -> Tensor:
    """One operation with the magnitude that torchvision's table has for it; half of the signed ones are negative."""
    magnitudes, signed = made._AUGMENTATION_SPACE[name]
    values = magnitudes(bins, *image.shape[1:])
    value = 0.0 if values is None or place is None else float(values[place])
    if signed and draw.random() < 0.5:
        value = -value
    changed: Tensor = made._apply_image_or_video_transform(
        image, name, value, interpolation=made.interpolation, fill=made._fill
    )
    return changed
