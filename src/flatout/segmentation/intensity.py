"""Changes of a patch's intensities, each for one sample: float tensors (channels, z, y, x), normalised.

Formulas are those of batchgeneratorsv2, in their order there; statistics are of each channel.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

TRUNCATE = 6.0  # width of the blur's kernel, standard deviations
TINY = 1e-7
SPACE = (-3, -2, -1)


def add_noise(image: Tensor, sigma: float, seed: int) -> Tensor:
    """Add Gaussian noise; its bits depend on the seed and the kind of device."""
    generator = torch.Generator(image.device)
    generator.manual_seed(seed)
    return image + sigma * torch.randn(image.shape, generator=generator, device=image.device, dtype=image.dtype)


def blur(image: Tensor, sigmas: tuple[float, float, float]) -> Tensor:
    """Gaussian blur along z, y and x; mirrored at the border."""
    for axis, sigma in enumerate(sigmas):
        kernel = gaussian_kernel(sigma).to(image.device, image.dtype)
        half = min(len(kernel) // 2, image.shape[1 + axis] - 1)
        kernel = kernel[len(kernel) // 2 - half : len(kernel) // 2 + half + 1]
        shape, padding = [1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]
        shape[2 + axis] = len(kernel)
        padding[4 - 2 * axis] = padding[5 - 2 * axis] = half
        padded = F.pad(image[:, None], padding, mode="reflect")
        image = F.conv3d(padded, (kernel / kernel.sum()).view(shape))[:, 0]
    return image


def gaussian_kernel(sigma: float) -> Tensor:
    """A normalised kernel of odd length."""
    length = _nearest_odd(sigma * TRUNCATE + 0.5)
    places = torch.arange(length, dtype=torch.float32) - (length - 1) / 2
    weights = torch.exp(-0.5 * (places / sigma) ** 2)
    return weights / weights.sum()


def _nearest_odd(value: float) -> int:
    nearest = round(value)
    if nearest % 2 == 0:
        nearest += 1 if value >= nearest else -1
    return max(nearest, 1)


def contrast(image: Tensor, factor: float) -> Tensor:
    """Stretch the distances to the mean; values stay inside the patch's range."""
    mean, low, high = image.mean(SPACE, keepdim=True), image.amin(SPACE, keepdim=True), image.amax(SPACE, keepdim=True)
    return torch.minimum(torch.maximum((image - mean) * factor + mean, low), high)


def low_resolution(image: Tensor, share: float) -> Tensor:
    """Keep so much of each axis, and interpolate linearly to the full size again."""
    size = image.shape[1:]
    small = [max(1, round(length * share)) for length in size]
    kept = F.interpolate(image[None], small, mode="nearest-exact")
    return F.interpolate(kept, list(size), mode="trilinear")[0]


def gamma(image: Tensor, exponent: float, *, inverted: bool) -> Tensor:
    """Raise the patch's range to a power; mean and standard deviation are kept.

    Args:
        image: of the patch.
        exponent: above 1 what is dark gets darker.
        inverted: of the negative image.
    """
    image = -image if inverted else image
    mean, deviation = image.mean(SPACE, keepdim=True), image.std(SPACE, keepdim=True)
    low = image.amin(SPACE, keepdim=True)
    spread = image.amax(SPACE, keepdim=True) - low
    raised = ((image - low) / spread.clamp(min=TINY)) ** exponent * spread + low
    now = raised.std(SPACE, keepdim=True).clamp(min=TINY)
    raised = (raised - raised.mean(SPACE, keepdim=True)) * (deviation / now) + mean
    return -raised if inverted else raised
