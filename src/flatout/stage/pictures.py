"""Scales or re-encodes pictures during the transfer, and leaves out those that cannot be decoded."""

from __future__ import annotations

import io
from dataclasses import dataclass

from flatout.formats.image_names import EXTENSIONS

_JPEG = (".jpg", ".jpeg")


class Corrupt(Exception):
    """A picture cannot be decoded."""


@dataclass(frozen=True, kw_only=True)
class PictureChange:
    """Changes to make to pictures; other files are copied unchanged.

    JPEGs are scaled with antialiasing (Lanczos), keep their colours, their ICC profile and their EXIF (with the
    orientation), and are never enlarged or cropped. Re-encoding is lossy: the semantic class of this change is
    ``data``.

    Attributes:
        short_side: pixels; JPEGs with a longer one are scaled down to it. None: no scaling.
        quality: of the JPEGs that are scaled, 1 to 95.
        baseline: progressive JPEGs become baseline ones, which decode faster, with the same quantisation tables.
        drop_corrupt: decode every picture, and leave out what fails.
    """

    short_side: int | None = None
    quality: int = 90
    baseline: bool = False
    drop_corrupt: bool = False

    @property
    def name(self) -> str:
        """Name of the change in the state, so that a file is staged again if the change differs."""
        parts = [f"short_side={self.short_side},quality={self.quality}" if self.short_side else ""]
        parts += ["baseline" if self.baseline else "", "drop_corrupt" if self.drop_corrupt else ""]
        return ",".join(part for part in parts if part)

    def applies(self, key: str) -> bool:
        """True if the file of this name may be changed."""
        lower = key.lower()
        if self.drop_corrupt:
            return lower.endswith(EXTENSIONS)
        return bool(self.short_side or self.baseline) and lower.endswith(_JPEG)

    def apply(self, key: str, data: bytes) -> bytes:
        """The picture's new bytes; unchanged if there is nothing to change.

        Raises:
            Corrupt: it cannot be decoded.
        """
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data)) as image:
                if self.drop_corrupt:
                    image.load()
                if image.format != "JPEG":
                    return data
                smaller = self.short_side is not None and min(image.size) > self.short_side
                if not smaller and not (self.baseline and image.info.get("progressive")):
                    return data
                kept = {name: image.info[name] for name in ("icc_profile", "exif") if name in image.info}
                made = io.BytesIO()
                if smaller:
                    assert self.short_side is not None
                    _scaled(image, self.short_side).save(made, "JPEG", quality=self.quality, optimize=True, **kept)
                else:
                    image.save(made, "JPEG", quality="keep", optimize=True, **kept)
                return made.getvalue()
        except Exception as error:  # any exception that a decoder raises on damaged bytes
            raise Corrupt(f"{key}: {str(error) or type(error).__name__}") from None


def _scaled(image, short_side: int):  # type: ignore[no-untyped-def]
    """The picture with this short side."""
    from PIL import Image

    width, height = image.size
    factor = short_side / min(width, height)
    size = (max(round(width * factor), 1), max(round(height * factor), 1))
    # The decoder may begin at 1/2, 1/4, 1/8: the filter still gets at least twice the wanted size.
    image.draft(None, (2 * size[0], 2 * size[1]))
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
