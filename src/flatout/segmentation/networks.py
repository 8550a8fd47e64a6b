"""U-Nets of dynamic-network-architectures, laid out for a patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from flatout.errors import UsageError

Size = tuple[int, int, int]
LEAST_SIDE = 4  # voxels of an axis at the lowest resolution
KINDS = ("residual-encoder-unet", "plain-unet")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Resolutions of a U-Net, the finest first."""

    strides: tuple[Size, ...]  # of each stage against the one before; the first is (1, 1, 1)
    features: tuple[int, ...]
    blocks: tuple[int, ...]  # residual blocks, or pairs of convolutions, of each stage of the encoder

    @property
    def divisors(self) -> Size:
        """A patch's sides have to be multiples of these."""
        z, y, x = (_product(stride[axis] for stride in self.strides) for axis in range(3))
        return z, y, x


def lay_out(patch: Size, features: Sequence[int], blocks: Sequence[int]) -> Layout:
    """Halve each axis from stage to stage, as long as it keeps at least four voxels.

    Args:
        patch: voxels (z, y, x).
        features: of each stage.
        blocks: of each stage.

    Raises:
        UsageError: the patch cannot be halved that often; the nearest sizes that can are given.
    """
    strides: list[Size] = [(1, 1, 1)]
    left = list(patch)
    for _ in features[1:]:
        halved = [2 if side // 2 >= LEAST_SIDE else 1 for side in left]
        if halved == [1, 1, 1]:
            raise UsageError(
                f"network.features: {len(features)} stages are too many for patches of {_size(patch)}: "
                f"{len(strides)} fit: give fewer, or a larger patches.size"
            )
        left = [side // factor for side, factor in zip(left, halved, strict=True)]
        strides.append((halved[0], halved[1], halved[2]))
    layout = Layout(strides=tuple(strides), features=tuple(features), blocks=tuple(blocks))
    check_patch(patch, layout)
    return layout


def check_patch(patch: Size, layout: Layout) -> None:
    """Check that the network's resolutions divide the patch.

    Raises:
        UsageError: they do not; the nearest sizes are given.
    """
    divisors = layout.divisors
    if all(side % divisor == 0 for side, divisor in zip(patch, divisors, strict=True)):
        return
    below = _size([side // divisor * divisor or divisor for side, divisor in zip(patch, divisors, strict=True)])
    above = _size([-(-side // divisor) * divisor for side, divisor in zip(patch, divisors, strict=True)])
    raise UsageError(
        f"patches.size: {_size(patch)} cannot be halved {len(layout.strides) - 1} times, which the network does: "
        f"sides have to be multiples of {_size(divisors)}: give {below} or {above}, or fewer network.features"
    )


def build_unet(kind: str, layout: Layout, *, channels: int, classes: int, deep_supervision: bool) -> UNet:
    """A network whose output is a tensor of logits, or with deep supervision one for each resolution but the lowest.

    Args:
        kind: one of ``KINDS``.
        layout: of its stages.
        channels: of the images.
        classes: of the output.
        deep_supervision: outputs at lower resolutions too, while it trains.
    """
    from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet

    shared: dict[str, Any] = {
        "input_channels": channels,
        "n_stages": len(layout.features),
        "features_per_stage": list(layout.features),
        "conv_op": nn.Conv3d,
        "kernel_sizes": 3,
        "strides": [list(stride) for stride in layout.strides],
        "num_classes": classes,
        "conv_bias": True,
        "norm_op": nn.InstanceNorm3d,
        "norm_op_kwargs": {"eps": 1e-5, "affine": True},
        "nonlin": nn.LeakyReLU,
        "nonlin_kwargs": {"inplace": True},
        "deep_supervision": deep_supervision,
    }
    stages = len(layout.features)
    network: Any
    if kind == "plain-unet":
        network = PlainConvUNet(
            n_conv_per_stage=list(layout.blocks), n_conv_per_stage_decoder=[1] * (stages - 1), **shared
        )
    else:
        network = ResidualEncoderUNet(
            n_blocks_per_stage=list(layout.blocks), n_conv_per_stage_decoder=[1] * (stages - 1), **shared
        )
    network.apply(network.initialize)
    return UNet(network)


class UNet(nn.Module):  # type: ignore[misc]
    """A network with all its outputs in training, and the finest alone otherwise."""

    def __init__(self, network: Any) -> None:
        """Wrap a network of dynamic-network-architectures."""
        super().__init__()
        self.network = network
        self._deep = bool(network.decoder.deep_supervision)

    def forward(self, images: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        """Logits of images (samples, channels, z, y, x)."""
        self.network.decoder.deep_supervision = self._deep and self.training
        made: torch.Tensor | list[torch.Tensor] = self.network(images)
        return made

    def checkpoint_activations(self) -> None:
        """Compute the encoder's and the decoder's stages again in the backward pass: less memory, more time."""
        for stage in (*self.network.encoder.stages, *self.network.decoder.stages):
            stage.forward = _recomputed(stage.forward)


def _recomputed(forward: Any) -> Any:
    def run(*inputs: torch.Tensor) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs)
        return checkpoint(forward, *inputs, use_reentrant=False)

    return run


def _product(values: Any) -> int:
    result = 1
    for value in values:
        result *= value
    return result


def _size(sides: Sequence[int]) -> str:
    return " × ".join(str(side) for side in sides)
