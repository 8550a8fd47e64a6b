"""Pillow: the reference for pixels, and the decoder of everything except ordinary JPEGs."""

from __future__ import annotations

import io
import warnings

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from flatout.loader.interfaces import BadImage, Crop

ORIENTATION = 0x0112  # EXIF


class PillowDecoder:
    """Decodes all that Pillow reads; the first frame of an animation."""

    device = "cpu"

    def __init__(self, scaled: bool = False, interpolation: str = "bilinear") -> None:
        """Decode at full size, or JPEGs at a smaller scale where the crop allows it (``scaled``); resize."""
        self._scaled = scaled
        self._resample = Image.Resampling[interpolation.upper()]
        # Damaged metadata with good pixels; set once for all threads, since catch_warnings is not thread-safe.
        warnings.filterwarnings("ignore", module=r"PIL\.")

    def decode_into(self, data: bytes, crop: Crop, slot: Tensor) -> None:
        """Decode, crop and resize (antialiased) into ``slot``, uint8 (height, width, 3) RGB.

        Raises:
            BadImage: Pillow cannot read the bytes.
        """
        height, width = slot.shape[:2]
        try:
            with Image.open(io.BytesIO(data)) as opened:
                image = self._upright(opened, crop, width, height)
        except Exception as error:
            raise BadImage(f"{_kind(data)}: {' '.join(str(error).split()) or type(error).__name__}") from None
        slot.copy_(torch.from_numpy(np.array(image)))

    def _upright(self, opened: Image.Image, crop: Crop, width: int, height: int) -> Image.Image:
        turned = opened.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
        full = opened.size[::-1] if turned else opened.size
        box = crop.box(*full)
        scale = 1.0
        if self._scaled and opened.format == "JPEG":
            smallest = min(box.width / width, box.height / height)
            opened.draft("RGB", (max(1, int(opened.size[0] / smallest)), max(1, int(opened.size[1] / smallest))))
        upright = _rgb(opened)
        if opened.getexif().get(ORIENTATION, 1) != 1:  # otherwise Pillow would only copy the image
            upright = ImageOps.exif_transpose(upright)
        scale = upright.size[0] / full[0]
        left, top = box.left * scale, box.top * scale
        edges = (
            left,
            top,
            min(left + box.width * scale, upright.size[0]),
            min(top + box.height * scale, upright.size[1]),
        )
        return upright.resize((width, height), self._resample, box=edges)


def _rgb(image: Image.Image) -> Image.Image:
    """RGB of any mode: 16-bit grey keeps its high byte; transparency is put on black, as in torchvision."""
    if image.mode in ("I;16", "I;16B", "I;16L", "I"):
        grey = np.asarray(image).astype(np.uint32)
        return Image.fromarray((grey >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    exif = image.info.get("exif")
    converted = image.convert("RGB")
    if exif is not None:
        converted.info["exif"] = exif
    return converted


def _kind(data: bytes) -> str:
    """Image format by the first bytes."""
    for magic, name in (
        (b"\xff\xd8", "JPEG"),
        (b"\x89PNG", "PNG"),
        (b"RIFF", "WebP"),
        (b"GIF8", "GIF"),
        (b"BM", "BMP"),
    ):
        if data.startswith(magic):
            return name
    return "no known image format" if data else "an empty file"
