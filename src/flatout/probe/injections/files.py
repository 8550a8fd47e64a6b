"""Pictures and their files: JPEGs decoded at a smaller scale, and bytes kept in memory."""

import functools
import io
import os


def install(injected, watch):
    """Patch ``PIL.Image.open`` once Pillow is imported."""
    watch("PIL.Image", functools.partial(_patch, injected))


def _patch(injected, module):
    original = module.open
    side = injected.get("jpeg_short_side")
    cache = _FileCache(int(injected.get("file_cache_bytes") or 0), injected)

    @functools.wraps(original)
    def opened(fp, mode="r", formats=None):
        if cache.room > 0 or cache.kept:
            fp = cache.opened(fp)
        image = original(fp, mode, formats)
        if side and image.format == "JPEG":
            width, height = image.size
            shorter = min(width, height)
            if shorter >= 2 * side:
                # The decoder offers 1/2, 1/4 and 1/8, and takes the smallest that is at least this large.
                image.draft(None, (-(-width * side // shorter), -(-height * side // shorter)))
            injected.done("jpeg_short_side")
        return image

    module.open = opened


class _FileCache:
    """Bytes of files kept in memory after the first read, up to ``room`` bytes."""

    __slots__ = ("injected", "kept", "room")

    def __init__(self, room, injected):
        self.room, self.injected = room, injected
        self.kept: dict[str, bytes] = {}

    def opened(self, file):
        """The object that Pillow opens in place of a path or open file: its bytes, or the file if it cannot be kept."""
        path = None
        if isinstance(file, (str, os.PathLike)):
            path = os.fspath(file)
        elif isinstance(getattr(file, "name", None), str) and hasattr(file, "fileno") and file.tell() == 0:
            path = file.name
        if path is None:
            return file
        path = os.path.abspath(path)
        data = self.kept.get(path)
        if data is None:
            size = os.path.getsize(path)
            if size > self.room:
                return file
            with open(path, "rb") as source:
                data = source.read()
            self.room -= len(data)
            self.kept[path] = data
        self.injected.done("file_cache_bytes")
        return io.BytesIO(data)
