"""The order of a torchvision pipeline: the cut to the final size before what changes colours or flips.

A colour is then changed on the pixels that are left. The samples differ (random numbers are drawn in another order, and
what looks at the whole picture, as contrast does, looks at the cut), so this is not the same training.
"""

import functools

# Parts that change each pixel by itself, or mirror the whole: before or after a cut they do the same to what is left,
# but for what they measure on the picture. Those that blur, turn or pad reach over the border of the cut.
_EACH_PIXEL = {
    "ColorJitter",
    "Grayscale",
    "RandomGrayscale",
    "RandomAutocontrast",
    "RandomEqualize",
    "RandomInvert",
    "RandomPosterize",
    "RandomSolarize",
    "RandomPhotometricDistort",
    "RandomChannelPermutation",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "RGB",
    "Normalize",
}
_HOLDS_OTHERS = {"RandomApply", "RandomChoice", "RandomOrder"}
_CUTS = {"RandomResizedCrop", "RandomCrop", "CenterCrop"}


def install(injected, watch):
    """Patch both generations of ``Compose`` once torchvision is imported."""
    watch("torchvision.transforms.transforms", functools.partial(_patch, injected, "__call__"))
    watch("torchvision.transforms.v2._container", functools.partial(_patch, injected, "forward"))


def _patch(injected, method, module):
    if not injected.get("crop_first"):
        return
    original = getattr(module.Compose, method)

    @functools.wraps(original)
    def ordered(self, *args, **kwargs):
        given = self.transforms
        parts = cut_first(given) if isinstance(given, (list, tuple)) else None
        if parts is None:
            return original(self, *args, **kwargs)
        injected.done("crop_first")
        self.transforms = parts
        try:
            return original(self, *args, **kwargs)
        finally:
            self.transforms = given

    setattr(module.Compose, method, ordered)


def cut_first(parts):
    """The parts of a pipeline with each cut moved before the parts that can follow it.

    Returns:
        A new list; None if no cut can move.
    """
    moved = list(parts)
    for place in range(1, len(moved)):
        if not _cuts(moved[place]):
            continue
        to = place
        while to and _of_each_pixel(moved[to - 1]):
            to -= 1
        moved.insert(to, moved.pop(place))
    return moved if any(one is not other for one, other in zip(moved, parts)) else None


def _name(part):
    return type(part).__name__


def _real(part):
    return getattr(part, "_part", part)  # one that the probe times


def _cuts(part):
    part = _real(part)
    # Padding is a colour too, that what comes before it does not change.
    pads = getattr(part, "padding", None) or getattr(part, "pad_if_needed", False)
    return _name(part) in _CUTS and type(part).__module__.startswith("torchvision.") and not pads


def _of_each_pixel(part):
    part = _real(part)
    if not type(part).__module__.startswith("torchvision."):
        return False
    if _name(part) in _HOLDS_OTHERS:
        held = getattr(part, "transforms", None) or ()
        return bool(held) and all(_of_each_pixel(each) for each in held)
    return _name(part) in _EACH_PIXEL
