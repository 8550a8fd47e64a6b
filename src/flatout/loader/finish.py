"""What happens to a batch on the device: flip, scale to floats, normalise, mix."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flatout.loader.contract import Batch


@dataclass
class Finish:
    """Turns a uint8 batch into what a model takes; works where the batch lies, without asking the device anything."""

    mean: tuple[float, float, float]  # per channel, of values in 0..1
    std: tuple[float, float, float]
    classes: int
    mixup: float = 0.0  # alpha of the Beta distribution; 0: off
    cutmix: float = 0.0
    seed: int = 0
    channels_last: bool = True
    _constants: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def __call__(self, batch: Batch, step: int, training: bool) -> tuple[Tensor, Tensor]:
        """Images float32 (n, 3, height, width), normalised; targets int64 (n,), or float (n, classes) when mixed.

        What is drawn depends on (seed, step) alone.
        """
        scale, shift = self._on(batch.images.device)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        images = batch.images.to(torch.float32, memory_format=layout)
        if training:
            images = torch.where(batch.flips[:, None, None, None], images.flip(3), images)
        images = torch.addcmul(shift, images, scale)
        if training and (self.mixup or self.cutmix):
            return self._mix(images, batch.labels, step)
        return images, batch.labels

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        known = self._constants.get(device)
        if known is None:
            mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (self.mean, self.std))
            known = self._constants[device] = (1 / (255 * std), -mean / std)
        return known

    def _mix(self, images: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Mixup (Zhang 2017) or CutMix (Yun 2019) of each image with its neighbour in the batch.

        With both on, one of them is drawn for each batch.
        """
        draw = random.Random((self.seed & 0xFFFFFFFF) << 64 | step)
        cut = bool(self.cutmix) and (not self.mixup or draw.random() < 0.5)
        alpha = self.cutmix if cut else self.mixup
        share = draw.betavariate(alpha, alpha)
        others = images.roll(1, 0)
        if cut:
            height, width = images.shape[2:]
            side = math.sqrt(1 - share)
            top, left = draw.randrange(height), draw.randrange(width)
            y0, y1 = (min(max(round(top + sign * side * height / 2), 0), height) for sign in (-1, 1))
            x0, x1 = (min(max(round(left + sign * side * width / 2), 0), width) for sign in (-1, 1))
            images = images.clone()
            images[:, :, y0:y1, x0:x1] = others[:, :, y0:y1, x0:x1]
            share = 1 - (y1 - y0) * (x1 - x0) / (height * width)  # as it was cut
        else:
            images = torch.lerp(others, images, share)
        hard = torch.nn.functional.one_hot(labels, self.classes).to(images.dtype)
        return images, torch.lerp(hard.roll(1, 0), hard, share)
