"""Pictures and their files: JPEGs decoded at a smaller scale, and bytes kept in memory."""

import functools
import io
import os

SETTINGS = ("jpeg_short_side", "file_cache_bytes")


def install(injected, watch):
    """Patch ``PIL.Image.open`` once Pillow is imported."""
    watch("PIL.Image", functools.partial(_patch, injected))


def _patch(injected, module):
    original = module.open
    side, budget = injected.get("jpeg_short_side"), injected.get("file_cache_bytes")
    kept: dict[str, bytes] = {}
    room = [int(budget or 0)]

    @functools.wraps(original)
    def opened(fp, mode="r", formats=None):
        if room[0] > 0 or kept:
            fp = _from_memory(fp, kept, room, injected)
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


def _from_memory(file, kept, room, injected):
    """The bytes of a file from memory, once they were read and as long as there is room."""
    path = None
    if isinstance(file, (str, os.PathLike)):
        path = os.fspath(file)
    elif isinstance(getattr(file, "name", None), str) and hasattr(file, "fileno") and file.tell() == 0:
        path = file.name
    if path is None:
        return file
    path = os.path.abspath(path)
    data = kept.get(path)
    if data is None:
        size = os.path.getsize(path)
        if size > room[0]:
            return file
        with open(path, "rb") as source:
            data = source.read()
        room[0] -= len(data)
        kept[path] = data
    injected.done("file_cache_bytes")
    return io.BytesIO(data)
