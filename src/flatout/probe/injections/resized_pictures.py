"""Pictures after the deterministic beginning of torchvision's transforms, such as ``Resize``: made once for each file.

The beginning is told by the names of its parts and their attributes. A picture is known by its file and by what Pillow
did to it on the way to ``Compose``; one that is changed in place is no longer known. Each process computes the first
pictures of each beginning as well and compares them, before it relies on those that are stored.
"""

import contextlib
import copy
import functools
import io
import os
import struct
import sys
from typing import Any

from ..sample_memory import CHECKED

BEGINNINGS = ("Resize", "CenterCrop", "Pad", "Grayscale", "RGB")
MODES = ("L", "RGB", "RGBA")
MADE = "_flatout_made"  # of a picture with pixels: its source, and what was done to it since
_WAITS = "_flatout_waits"
_HEADER = struct.Struct("<4sII")  # mode, width, height
_IN_PLACE = (
    "paste",
    "putpixel",
    "putdata",
    "putalpha",
    "putpalette",
    "frombytes",
    "alpha_composite",
    "thumbnail",
    "close",
)
_MOST_WAITING = 64  # pictures that keep their files open


class Beginnings:
    """What this process knows of the pipelines that its pictures go through.

    Attributes:
        expected: the beginning of the pipeline that was called last; empty: there was none.
    """

    def __init__(self, kept):
        self.kept = kept
        self.expected = ()
        self.waiting = 0  # pictures whose file was not decoded yet
        self._compared = {}
        self._leads, self._underway = {}, set()

    def checked(self, beginning):
        """True if stored pictures of this beginning are to be relied on."""
        return self._compared.get(beginning, 0) >= CHECKED

    def holds(self, made):
        """True if its pipeline has stored what it makes of a picture first: its pixels will hardly be asked for."""
        expected = self.expected
        if not expected or not self.checked(expected) or self.waiting >= _MOST_WAITING:
            return False
        return self.kept.find(self.kept.key(made[0], (made[1], expected))) is not None

    def compare(self, beginning, stored, made):
        """Compare a stored picture with the one that was computed now."""
        self._compared[beginning] = self._compared.get(beginning, 0) + 1
        self.kept.compare(stored, made, "a picture, resized, was another one than before: it may be changed in place")

    def decoded(self, form):
        """Note that a picture's file was decoded.

        Returns:
            True if its pixels should be stored: pictures of this form go through no beginning.
        """
        if form in self._underway:  # the one before went elsewhere
            self._leads[form] = False
        self._underway.add(form)
        return not self._leads.get(form)

    def led(self, form):
        """Note that a picture of this form went through a beginning."""
        self._leads[form] = True
        self._underway.discard(form)


def patch(kept, watch):
    """Patch Pillow and both generations of ``Compose`` once they are imported; returns what they share."""
    beginnings = Beginnings(kept)
    watch("PIL.Image", functools.partial(_patch_pictures, beginnings))
    watch("PIL.ImageDraw", _patch_drawing)
    watch("torchvision.transforms.transforms", functools.partial(_patch_compose, beginnings, "__call__"))
    watch("torchvision.transforms.v2._container", functools.partial(_patch_compose, beginnings, "forward"))
    return beginnings


def _patch_compose(beginnings, method, module):
    original = getattr(module.Compose, method)
    kept = beginnings.kept

    @functools.wraps(original)
    def composed(self, *inputs, **kwargs):
        made, parts = made_of(inputs[0]) if len(inputs) == 1 and not kwargs else None, self.transforms
        if made is not None and not _has_pixels(inputs[0]):
            made = None  # it raises, as it always did
        if made is None or not isinstance(parts, (list, tuple)):
            return original(self, *inputs, **kwargs)
        beginnings.expected = beginning = beginning_of(parts)
        if not beginning:
            return original(self, *inputs, **kwargs)
        picture = inputs[0]
        beginnings.led(made[1][:2])
        key = kept.key(made[0], (made[1], beginning))
        stored = kept.find(key)
        if stored is not None and beginnings.checked(beginning):
            result = _unpacked(stored, picture.info)
            kept.used()
        else:
            result = picture
            for part in parts[: len(beginning)]:
                result = part(result)
            packed = _packed(result, picture.info)
            if packed is not None and stored is not None:
                beginnings.compare(beginning, stored, packed)
            elif packed is not None:
                kept.keep(key, packed)
        for part in parts[len(beginning) :]:
            result = part(result)
        return result

    setattr(module.Compose, method, composed)


def beginning_of(parts):
    """The deterministic parts that a pipeline begins with, each as its name and its attributes."""
    found = []
    for part in parts:
        part = getattr(part, "_part", part)  # one that the probe times
        name = type(part).__name__
        of_torchvision = name in BEGINNINGS and type(part).__module__.startswith("torchvision.transforms.")
        if not of_torchvision or _is_hooked(part):
            break
        found.append((name, repr(sorted((key, repr(value)) for key, value in vars(part).items() if key[0] != "_"))))
    return tuple(found)


def _is_hooked(part):
    return bool(
        getattr(part, "_forward_hooks", None)
        or getattr(part, "_forward_pre_hooks", None)
        or sys.modules["torch"].nn.modules.module._has_any_global_hook()
    )


def made_of(picture):
    """What a picture was made from, as source and form; None: it is not known."""
    try:
        made = vars(picture).get(MADE)
    except TypeError:  # without attributes
        return None
    if made is not None and getattr(picture, "tile", None):
        return made[0], form_of(picture)  # as it would be decoded now
    return made


def form_of(image):
    """What the pixels of a file depend on besides it, such as a decoder that was asked for a smaller picture."""
    truncated = sys.modules["PIL.ImageFile"].LOAD_TRUNCATED_IMAGES
    return image.format, image.mode, image.size, getattr(image, "decoderconfig", ()), truncated


def _has_pixels(picture):
    """False for a picture that was closed."""
    if getattr(picture, "tile", None):
        return picture.fp is not None and not picture.fp.closed
    try:
        return _WAITS in vars(picture) or picture.im is not None
    except Exception:  # what Pillow keeps for the next access
        return False


def _packed(picture, info):
    """Mode, size and pixels; None: more than these would have to be stored."""
    if getattr(picture, "mode", None) not in MODES or getattr(picture, "info", None) != info:
        return None
    return _HEADER.pack(picture.mode.encode(), *picture.size) + picture.tobytes()


def _unpacked(stored, info):
    from PIL import Image

    mode, width, height = _HEADER.unpack_from(stored)
    picture = Image.frombytes(mode.rstrip(b"\0").decode(), (width, height), bytes(stored[_HEADER.size :]))
    picture.info = dict(info)
    return picture


def _patch_drawing(module):
    original = module.Draw

    @functools.wraps(original)
    def draw(im, *args, **kwargs):
        try:
            return original(im, *args, **kwargs)
        finally:
            vars(im).pop(MADE, None)

    module.Draw = draw


def _patch_pictures(beginnings, module):
    picture_class: Any = module.Image
    convert = picture_class.convert

    def load(self):
        if is_outside(sys._getframe(1)):
            self.__dict__.pop(MADE, None)
        waits = self.__dict__.pop(_WAITS, None)
        if waits is not None:
            beginnings.waiting -= 1
            info, made = self.info, convert(*waits)
            self.__dict__.update(vars(made))
            self.info = info
            self.__class__ = picture_class
        return picture_class.load(self)

    def close(self):
        if self.__dict__.pop(_WAITS, None) is not None:
            beginnings.waiting -= 1
            self.__class__ = picture_class
        picture_class.close(self)

    def __del__(self):
        if self.__dict__.pop(_WAITS, None) is not None:
            beginnings.waiting -= 1

    def __reduce_ex__(self, protocol):
        load(self)
        return picture_class.__reduce_ex__(self, protocol)

    # A converted picture whose file is decoded when its pixels are asked for; then it is an ordinary one.
    waiting_class = type(
        "Waiting", (picture_class,), {part.__name__: part for part in (load, close, __del__, __reduce_ex__)}
    )

    def waiting(image, mode, made):
        own = _with_own_file(image)
        found: Any = waiting_class()
        setattr(found, "_mode" if hasattr(found, "_mode") else "mode", mode)
        found._size, found.info = image.size, dict(image.info)
        found.__dict__.update({MADE: made, _WAITS: (own, mode)})
        beginnings.waiting += 1
        return found

    @functools.wraps(convert)
    def converted(self, mode=None, *args, **kwargs):
        made = made_of(self)
        if made is None or args or kwargs or mode not in MODES or self.mode not in MODES or "transparency" in self.info:
            return convert(self, mode, *args, **kwargs)
        made = (made[0], (*made[1], mode))
        if getattr(self, "tile", None) and _has_pixels(self) and beginnings.holds(made):
            with contextlib.suppress(OSError, ValueError):
                return waiting(self, mode, made)
        found = convert(self, mode)
        found.__dict__[MADE] = made
        return found

    real_load = picture_class.load

    @functools.wraps(real_load)
    def loaded(self):
        # What other code than Pillow's loads itself, it can change by pixels at any time after.
        if MADE in self.__dict__ and is_outside(sys._getframe(1)):
            del self.__dict__[MADE]
        return real_load(self)

    picture_class.load = loaded
    picture_class.convert = converted
    for name in _IN_PLACE:
        if hasattr(picture_class, name):
            setattr(picture_class, name, _forgetting(getattr(picture_class, name)))


def is_outside(frame):
    """True for a caller that is neither Pillow nor one of these patches."""
    name = frame.f_globals.get("__name__", "")
    return not (name.startswith("PIL.") or name.rpartition(".")[0] == __package__)


def _forgetting(original):
    """A method that changes a picture in place: it is no longer what its file holds."""

    @functools.wraps(original)
    def changed(self, *args, **kwargs):
        try:
            return original(self, *args, **kwargs)
        finally:
            self.__dict__.pop(MADE, None)

    return changed


def _with_own_file(image):
    """A copy of a picture that is not decoded yet, whose file stays open when the program closes its own.

    Raises:
        OSError: the file cannot be opened again.
    """
    file = image.fp
    if isinstance(file, io.BytesIO):
        own: Any = io.BytesIO(file.getvalue())
    else:
        own = os.fdopen(os.open("/proc/self/fd/%d" % file.fileno(), os.O_RDONLY | os.O_CLOEXEC), "rb")
    own.seek(file.tell())
    found = object.__new__(type(image))
    found.__dict__.update(vars(image))
    found.fp, found._exclusive_fp = own, True
    png = getattr(image, "png", None)
    if png is not None:
        found.png = copy.copy(png)
        found.png.fp = own
    return found
