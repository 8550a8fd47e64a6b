"""Augmentation of a batch where it lies: on the GPU, or with the same code on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flatout.segmentation import intensity
from flatout.segmentation.draws import Draw
from flatout.segmentation.warping import affine_matrix, warp

UNTURNED = (0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """From stored intensities to those that the network sees: clipped, then (value - mean) / std."""

    mean: float
    std: float
    low: float
    high: float

    def __call__(self, images: Tensor) -> Tensor:
        """Float32 images, of stored ones of any dtype."""
        return images.to(torch.float32).clamp(self.low, self.high).sub_(self.mean).div_(max(self.std, 1e-8))


def augment(images: Tensor, labels: Tensor, draws: Sequence[Draw], ignore: int) -> tuple[Tensor, Tensor]:
    """Change each sample by what was drawn for it.

    All parameters are known to the host, so nothing waits for the device. Operations come in the order of nnU-Net.

    Args:
        images: float (samples, channels, z, y, x), normalised; may be overwritten.
        labels: integers (samples, z, y, x); may be overwritten.
        draws: one a sample.
        ignore: the label of voxels that a rotation or scaling takes from beyond the patch: the loss leaves them out.
    """
    for place, drawn in enumerate(draws):
        before, label_before = images[place], labels[place]
        image, label = _changed(before, label_before, drawn, ignore)
        if image is not before:
            images[place] = image
        if label is not label_before:
            labels[place] = label
    return images, labels


def _changed(image: Tensor, label: Tensor, drawn: Draw, ignore: int) -> tuple[Tensor, Tensor]:
    if drawn.angles is not None or drawn.scale is not None:
        matrix = affine_matrix(drawn.angles or UNTURNED, 1.0 if drawn.scale is None else drawn.scale)
        image, label = warp(image, label, matrix, ignore)
    if drawn.noise is not None:
        image = intensity.add_noise(image, drawn.noise, drawn.noise_seed)
    if drawn.blur is not None:
        image = intensity.blur(image, drawn.blur)
    if drawn.brightness is not None:
        image = image * drawn.brightness
    if drawn.contrast is not None:
        image = intensity.contrast(image, drawn.contrast)
    if drawn.low_resolution is not None:
        image = intensity.low_resolution(image, drawn.low_resolution)
    if drawn.inverted_gamma is not None:
        image = intensity.gamma(image, drawn.inverted_gamma, inverted=True)
    if drawn.gamma is not None:
        image = intensity.gamma(image, drawn.gamma, inverted=False)
    if drawn.mirrored:
        image, label = image.flip([axis + 1 for axis in drawn.mirrored]), label.flip(drawn.mirrored)
    return image, label
