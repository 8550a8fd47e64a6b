"""Pictures and their files: JPEGs decoded at a smaller scale, and bytes kept in memory."""

import functools
import io
import os
import time
from typing import Any

# A file that is written twice within one tick of the file system's clock may keep its times.
_SETTLED_S = 2.0


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
            image = original(cache.opened(fp), mode, formats)
            if isinstance(fp, (str, bytes, os.PathLike)):
                image.filename = os.fspath(fp)
        else:
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
    """Bytes of files that are kept after the first read, up to ``room`` bytes, as long as files stay as they are."""

    __slots__ = ("injected", "kept", "room")

    def __init__(self, room, injected):
        self.room, self.injected = room, injected
        self.kept: Any = {}  # path -> the file's stamp, and its bytes

    def opened(self, file):
        """The object that Pillow opens in place of a path or open file: its bytes, or the file if it cannot be kept."""
        path = None
        if isinstance(file, (str, bytes, os.PathLike)):
            path = os.fspath(file)
        elif isinstance(getattr(file, "name", None), str) and hasattr(file, "fileno") and file.tell() == 0:
            path = file.name
        if path is None:
            return file
        path = os.path.abspath(path)
        try:
            stamp = _stamp(os.stat(path))
        except (OSError, ValueError):  # Pillow says so
            return file
        before, data = self.kept.get(path, (None, None))
        if before != stamp:
            self.room += len(data or b"")
            self.kept.pop(path, None)
            data = self._read(path, stamp)
            if data is None:
                return file
        self.injected.done("file_cache_bytes")
        return io.BytesIO(data)

    def _read(self, path, stamp):
        """A file's bytes, which are kept; None: there is no room for them, or the file may just be changing."""
        _, _, size, *times = stamp
        if size > self.room or time.time() < max(times) / 1e9 + _SETTLED_S:
            return None
        with open(path, "rb") as source:
            data = source.read()
            if _stamp(os.fstat(source.fileno())) != stamp or len(data) != size:
                return None
        self.room -= size
        self.kept[path] = stamp, data
        return data


def _stamp(status):
    """What changes when a file is written or replaced."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
