"""NVIDIA's JPEG decoder through torchvision: bytes are decoded on the GPU, and the pixels stay there."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.io import ImageReadMode, decode_jpeg

from flatout.errors import UsageError
from flatout.loader.decoders.pillow import PillowDecoder
from flatout.loader.interfaces import Crop


class NvjpegDecoder:
    """Decodes JPEGs on the GPU; hands everything else to Pillow."""

    device = "cuda"

    def __init__(self, interpolation: str = "bilinear") -> None:
        """Prepare; resize by ``interpolation``.

        Raises:
            UsageError: there is no CUDA device.
        """
        if not torch.cuda.is_available():
            raise UsageError("images.decoder: nvjpeg needs a CUDA device, there is none: set it to torchvision")
        warnings.filterwarnings("ignore", "The image decoding and encoding capabilities", DeprecationWarning)
        self._rest = PillowDecoder(interpolation=interpolation)
        self._interpolation = interpolation

    def decode_into(self, data: bytes, crop: Crop, slot: Tensor) -> None:
        """Decode, crop and resize (antialiased) into ``slot``, uint8 (height, width, 3) RGB on the GPU.

        This decoder ignores EXIF orientation: such images, and all that are not JPEGs, go to Pillow.

        Raises:
            BadImage: neither nvJPEG nor Pillow can read the bytes.
        """
        if not data.startswith(b"\xff\xd8") or b"\xff\xd9" not in data[-4096:] or b"Exif\0\0" in data[:4096]:
            self._by_pillow(data, crop, slot)
            return
        try:
            image = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB, device="cuda")
        except RuntimeError:
            self._by_pillow(data, crop, slot)
            return
        assert isinstance(image, Tensor)  # one in, one out
        box = crop.box(image.shape[2], image.shape[1])
        left, top = int(box.left), int(box.top)
        part = image[None, :, top : top + int(box.height), left : left + int(box.width)].float()
        resized = interpolate(part, size=tuple(slot.shape[:2]), mode=self._interpolation, antialias=True)
        slot.copy_(resized[0].permute(1, 2, 0).round_().clamp_(0, 255))

    def _by_pillow(self, data: bytes, crop: Crop, slot: Tensor) -> None:
        pixels = torch.empty(slot.shape, dtype=torch.uint8)
        self._rest.decode_into(data, crop, pixels)
        slot.copy_(pixels)
