"""Image files recognised by name, and names that no packed format can hold."""

from __future__ import annotations

EXTENSIONS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".avif", ".bmp", ".gif", ".tif", ".tiff",
    ".jp2", ".j2k", ".jpx", ".ppm", ".pgm", ".pnm", ".tga",
)  # fmt: skip
