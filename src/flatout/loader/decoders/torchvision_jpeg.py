"""torchvision's libjpeg-turbo and torch's antialiased uint8 resize: both release the interpreter lock."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg

from flatout.loader.decoders.pillow import PillowDecoder
from flatout.loader.interfaces import Crop


class TorchvisionDecoder:
    """Decodes JPEGs; hands everything else, and what libjpeg refuses, to Pillow."""

    device = "cpu"

    def __init__(self, interpolation: str = "bilinear") -> None:
        """Prepare the decoder of the rest; resize by ``interpolation``, bilinear or bicubic."""
        # Set once for all threads (`warnings.catch_warnings` is not thread-safe). The successor is torchcodec.
        warnings.filterwarnings("ignore", "The image decoding and encoding capabilities", DeprecationWarning)
        self._rest = PillowDecoder(interpolation=interpolation)
        resizing = {"bilinear": "_upsample_bilinear2d_aa", "bicubic": "_upsample_bicubic2d_aa"}
        self._resize_name = resizing[interpolation]

    def decode_into(self, data: bytes, crop: Crop, slot: Tensor) -> None:
        """Decode, crop and resize (antialiased) into ``slot``, uint8 (height, width, 3) RGB.

        Raises:
            BadImage: neither libjpeg nor Pillow can read the bytes.
        """
        # libjpeg fills a missing end with grey; Pillow reports it.
        if not data.startswith(b"\xff\xd8") or b"\xff\xd9" not in data[-4096:]:
            self._rest.decode_into(data, crop, slot)
            return
        try:
            # A copy, since torch needs writable memory.
            encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            image = decode_jpeg(encoded, ImageReadMode.RGB, apply_exif_orientation=True)
        except RuntimeError:
            self._rest.decode_into(data, crop, slot)
            return
        assert isinstance(image, Tensor)  # one in, one out
        box = crop.box(image.shape[2], image.shape[1])
        left, top = int(box.left), int(box.top)
        part = image[None, :, top : top + int(box.height), left : left + int(box.width)]
        # What `interpolate(antialias=True)` calls, written straight into the slot: through `interpolate` the result of
        # one image is in another layout than it came in, and copied; together 0.2 ms an image.
        getattr(torch.ops.aten, self._resize_name).out(
            part, tuple(slot.shape[:2]), align_corners=False, out=slot.permute(2, 0, 1)[None]
        )
