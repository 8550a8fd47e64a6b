"""From encoded bytes to pixels: one decoder a file, all behind one interface."""

from __future__ import annotations

from flatout.errors import UsageError
from flatout.loader.interfaces import Decoder

NAMES = ("torchvision", "pillow", "nvjpeg", "dali")


def make_decoder(name: str, scaled: bool = False, interpolation: str = "bilinear") -> Decoder:
    """The decoder of a name.

    Args:
        name: one of ``NAMES``.
        scaled: decode large JPEGs at 1/2, 1/4 or 1/8 where the crop shrinks at least as much; shifts pixels.
        interpolation: of resizing, bilinear or bicubic; antialiased.

    Raises:
        UsageError: no such decoder is available here.
    """
    if name in ("torchvision", "dali"):  # DALI builds whole batches; images that it leaves are decoded here
        from flatout.loader.decoders.torchvision_jpeg import TorchvisionDecoder

        if scaled:
            raise UsageError("images.scaled_decode: torchvision's decoder cannot: set images.decoder to pillow")
        return TorchvisionDecoder(interpolation)
    if name == "pillow":
        from flatout.loader.decoders.pillow import PillowDecoder

        return PillowDecoder(scaled, interpolation)
    if name == "nvjpeg":
        from flatout.loader.decoders.nvjpeg import NvjpegDecoder

        return NvjpegDecoder(interpolation)
    raise UsageError(f"images.decoder: {name!r} is no decoder: allowed are {', '.join(NAMES)}")
