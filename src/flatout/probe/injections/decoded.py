"""Pictures that are decoded once: what a file decodes to is kept in memory that all workers share.

Only the decoder is left out: the picture is opened, and all that comes after its decoding runs each time. So random
transforms stay random, and the samples are the same, bit for bit.
"""

import functools
import hashlib
import io
import os

from ..sample_memory import KEY_BYTES, SampleMemory

# Formats and modes in which decoding leaves nothing behind but the pixels.
_FORMATS = ("JPEG", "PNG")
_MODES = ("L", "RGB", "RGBA")
_MARK = "_flatout_source"


def install(injected, watch):
    """Make or join the shared memory, and patch Pillow once it is imported."""
    room = injected.get("sample_cache_bytes")
    try:
        kept = _Kept(SampleMemory(int(room)), injected)
    except (OSError, ValueError, AttributeError) as error:  # no memfd_create before Linux 3.17
        injected.refuse("sample_cache_bytes", "%s bytes cannot be shared: %s" % (room, error))
        return
    watch("PIL.Image", functools.partial(_patch_open))
    watch("PIL.ImageFile", functools.partial(_patch_load, kept))


class _Kept:
    """Samples by what they are made from, with the check of the first ones."""

    def __init__(self, memory, injected):
        self._memory, self._injected = memory, injected

    def find(self, key):
        """The stored bytes, to be relied on if ``checked``; None: there are none."""
        try:
            return self._memory.find(key)
        except OSError:  # the program closed the descriptor
            return None

    @property
    def checked(self):
        return not self._memory.unchecked()

    def compare(self, stored, made):
        """Compare a stored sample with the one that was computed now."""
        if bytes(stored) == bytes(made):
            self._memory.compared(True)
            self.used()
        else:
            self.give_up("a picture decoded to other values than before")

    def give_up(self, why):
        """Rely on nothing that is stored, in any process."""
        self._memory.compared(False)
        self._injected.refuse("sample_cache_bytes", why)

    def used(self):
        """Note that samples are stored and used, also where another process stored them all."""
        self._injected.done("sample_cache_bytes")

    def keep(self, key, made):
        """Store a sample, if there is room."""
        try:
            if self._memory.keep(key, made):
                self.used()
        except OSError:
            pass


def _patch_open(module):
    original = module.open

    @functools.wraps(original)
    def opened(fp, mode="r", formats=None):
        source = _source(fp)
        image = original(fp, mode, formats)
        if source and image.format in _FORMATS and getattr(image, "n_frames", 1) == 1:
            setattr(image, _MARK, source)
        return image

    module.open = opened


def _source(file):
    """What tells the content of a path or an open file from all others, as bytes; None: it is something else."""
    try:
        if isinstance(file, io.BytesIO):
            return hashlib.blake2b(file.getbuffer(), digest_size=KEY_BYTES).digest() if file.tell() == 0 else None
        if isinstance(file, (str, bytes, os.PathLike)):
            found = os.stat(file)
        elif isinstance(file, io.BufferedReader) and file.tell() == 0:
            found = os.fstat(file.fileno())
        else:
            return None
    except (OSError, ValueError):
        return None
    return b"%d %d %d %d %d" % (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _patch_load(kept, module):
    original = module.ImageFile.load

    @functools.wraps(original)
    def loaded(self):
        source = vars(self).pop(_MARK, None)
        if source is None or not self.tile or self.mode not in _MODES:
            return original(self)
        # A decoder that was asked for a smaller picture makes other pixels.
        form = (self.format, self.mode, self.size, getattr(self, "decoderconfig", ()))
        key = hashlib.blake2b(source + repr(form).encode(), digest_size=KEY_BYTES).digest()
        stored = kept.find(key)
        if stored is not None and kept.checked:
            try:
                _put_pixels(self, stored)
            except Exception as error:  # another Pillow: the picture is as before, and can be decoded
                kept.give_up("Pillow takes no pixels: %s" % error)
                return original(self)
            kept.used()
            return _finished(self)
        before = dict(self.info)
        found = original(self)
        made = self.tobytes()
        if stored is not None:
            kept.compare(stored, made)
        elif self.info == before:  # what follows the pixels in the file told nothing more
            kept.keep(key, made)
        return found

    module.ImageFile.load = loaded

    def _put_pixels(image, pixels):
        image.load_prepare()
        decoder = module.Image._getdecoder(image.mode, "raw", (image.mode, 0, 1))
        decoder.setimage(image.im, (0, 0, *image.size))
        left, failed = decoder.decode(pixels)
        if left >= 0 or failed:
            raise ValueError("%d, %d" % (left, failed))

    def _finished(image):
        """Leave the picture as decoding does."""
        image.tile = []
        image.map = None
        image.readonly = 0
        png = getattr(image, "png", None)
        if png is not None:
            image._text = png.im_text
            png.close()
            image.png = None
        if image._exclusive_fp and image._close_exclusive_fp_after_loading:
            image.fp.close()
        image.fp = None
        return module.Image.Image.load(image)
