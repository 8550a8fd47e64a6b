"""Processing of a batch on the device: flip, scale to floats, normalise, mix."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flatout.loader.interfaces import Batch


@dataclass
class Finish:
    """Turns a uint8 batch into what a model takes; works where the batch lies, without asking the device anything."""

    mean: tuple[float, float, float]  # per channel, of values in 0..1
    std: tuple[float, float, float]
    classes: int
    channels: int = 3  # 1: grey
    mixup: float = 0.0  # alpha of the Beta distribution; 0: off
    cutmix: float = 0.0
    cutmix_range: tuple[float, float] | None = None  # sides of CutMix's box, shares of the image's
    mix_probability: float = 1.0
    cutmix_share: float = 0.5  # probability of CutMix where both are on
    mix_mode: str = "batch"  # what is drawn once: batch, pair or elem
    mix_off_epoch: int | None = None
    mix_smoothing: float = 0.0  # of the mixed targets
    erasing: float = 0.0  # probability
    erasing_mode: str = "pixel"
    erasing_count: int = 1
    seed: int = 0
    channels_last: bool = True
    _constants: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict)
    _mixing: Any = None
    _erasers: dict[torch.device, Any] = field(default_factory=dict)

    def __call__(self, batch: Batch, step: int, training: bool, epoch: int = 0) -> tuple[Tensor, Tensor]:
        """Images float32 (n, channels, height, width), normalised; targets int64 (n,), or (n, classes) when mixed.

        What is drawn depends on (seed, step) alone, except for the noise of erased pixels: that is torch's.
        """
        scale, shift = self._on(batch.images.device)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        images = batch.images.to(torch.float32, memory_format=layout)
        if training:
            images = torch.where(batch.flips[:, None, None, None], images.flip(3), images)
        images = torch.addcmul(shift, images, scale)
        if self.channels == 1:
            images = images.mean(1, keepdim=True)
        mixes = bool(self.mixup or self.cutmix or self.cutmix_range) and (
            self.mix_off_epoch is None or epoch < self.mix_off_epoch
        )
        if not training or not (mixes or self.erasing):
            return images, batch.labels
        with _drawing(self.seed, step):
            if self.erasing:
                images = self._eraser(images.device)(images)
            if mixes:
                mixed: tuple[Tensor, Tensor] = self._mixer()(images, batch.labels)
                return mixed
        return images, batch.labels

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        known = self._constants.get(device)
        if known is None:
            mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (self.mean, self.std))
            known = self._constants[device] = (1 / (255 * std), -mean / std)
        return known

    def _mixer(self) -> Any:
        """Mixup (Zhang 2017) and CutMix (Yun 2019) of timm; works on an even number of images."""
        if self._mixing is None:
            from timm.data import Mixup

            self._mixing = Mixup(
                mixup_alpha=self.mixup,
                cutmix_alpha=self.cutmix,
                cutmix_minmax=self.cutmix_range,
                prob=self.mix_probability,
                switch_prob=self.cutmix_share,
                mode=self.mix_mode,
                label_smoothing=self.mix_smoothing,
                num_classes=self.classes,
            )
        return self._mixing

    def _eraser(self, device: torch.device) -> Any:
        """Random erasing (Zhong 2017) of timm."""
        if device not in self._erasers:
            from timm.data.random_erasing import RandomErasing

            self._erasers[device] = RandomErasing(
                self.erasing, mode=self.erasing_mode, max_count=self.erasing_count, device=str(device)
            )
        return self._erasers[device]


@contextmanager
def _drawing(seed: int, step: int) -> Iterator[None]:
    """Seed Python's and numpy's generators from (seed, step); restore them afterwards."""
    before: Any = random.getstate(), np.random.get_state()
    random.seed((seed & 0xFFFFFFFF) << 64 | step)
    np.random.seed(random.getrandbits(32))
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
