"""Pictures of Pillow that are decoded once: the file is opened, and stored pixels stand in for its decoder's."""

import functools
import sys

from .resized_pictures import MADE, MODES, form_of, is_outside, made_of

# Formats in which decoding leaves nothing behind but the pixels.
_FORMATS = ("JPEG", "PNG")


def patch(kept, beginnings, watch):
    """Patch Pillow once it is imported."""
    watch("PIL.Image", functools.partial(_patch_open, kept))
    watch("PIL.ImageFile", functools.partial(_patch_load, kept, beginnings))


def _patch_open(kept, module):
    original = module.open

    @functools.wraps(original)
    def opened(fp, mode="r", formats=None):
        source = kept.source_of(fp)
        image = original(fp, mode, formats)
        if source and image.format in _FORMATS and getattr(image, "n_frames", 1) == 1:
            vars(image)[MADE] = (source, form_of(image))
        return image

    module.open = opened


def _patch_load(kept, beginnings, module):
    original = module.ImageFile.load

    @functools.wraps(original)
    def loaded(self):
        made = made_of(self)
        if made is None or not self.tile or self.mode not in MODES or self.fp is None:
            return original(self)
        source, form = made
        vars(self).pop(MADE)
        if not is_outside(sys._getframe(1)):
            vars(self)[MADE] = made
        key = kept.key(source, form)
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
        if stored is not None:
            kept.compare(stored, self.tobytes())
        elif self.info != before:  # what follows the pixels in the file told more
            vars(self).pop(MADE, None)
        elif beginnings.decoded(form[:2]):
            kept.keep(key, self.tobytes())
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
