"""The cost of each transform of a pipeline, and its effect on the size of the picture.

Pipelines are torchvision's ``Compose``, of both generations, and MONAI's, which looks at the classes of its parts:
there the function that calls each of them is timed, and the record has which ones MONAI itself calls random. Parts are
timed in the batches in which samples are timed one by one, within the same budget.
"""

import sys
import threading

from .. import events
from ..recorder import REC, now, report_fault
from ..unbound import unseen
from ..wrap import is_compiling
from . import fetching

PART_COST_NS = 2_000
MAX_PIXELS = 1 << 40


class _TimedPart:
    """Stands in for one transform during one call of its pipeline."""

    def __init__(self, part, place):
        self._part = part
        self._place = place

    def __call__(self, *inputs):
        start = now()
        result = self._part(*inputs)
        end = now()
        try:
            before, after = pixels(inputs[0]), pixels(result[0] if isinstance(result, tuple) else result)
            name = REC.names.text(type(self._part).__name__)
            REC.emit(events.TRANSFORM, start, end, name, before, events.transform_bits(after, self._place))
        except Exception:
            report_fault("transform")
        return result


def pixels(picture):
    """Pixels of a Pillow image, a (..., H, W) tensor or an (H, W, ...) array; 0 for anything else."""
    size = getattr(picture, "size", None)
    if isinstance(size, tuple) and len(size) == 2:
        return size[0] * size[1]
    shape = getattr(picture, "shape", None)
    if shape is None or len(shape) < 2:
        return 0
    sides = shape[-2:] if callable(size) else shape[:2]  # a tensor's size is a method, an array's a number
    return min(int(sides[0]) * int(sides[1]), MAX_PIXELS)


def watch_for(watch):
    """Patch the two generations when they are imported."""
    watch("torchvision.transforms.transforms", lambda module: _patch(module.Compose, "__call__"))
    watch("torchvision.transforms.v2._container", lambda module: _patch(module.Compose, "forward"))
    watch("monai.transforms.compose", _patch_monai)


class _Place:
    """The place of the next part in the outermost pipeline of a thread; None: none runs, or it is not timed."""

    def __init__(self):
        self.next = None
        self.inside = False  # a part runs


def _patch_monai(module):
    apply = getattr(module, "apply_transform", None)
    if apply is None:  # untested: a MONAI that calls its parts elsewhere
        return
    call, here = module.Compose.__call__, threading.local()

    @unseen(call)
    def timed_pipeline(self, *args, **kwargs):
        place = here.__dict__.setdefault("place", _Place())
        if not fetching.STATE.timing_samples or not REC.on or place.next is not None:
            return call(self, *args, **kwargs)
        fetching.STATE.sample_cost_ns = fetching.ITEM_COST_NS + PART_COST_NS * len(self.transforms)
        place.next = kwargs.get("start") or 0
        try:
            return call(self, *args, **kwargs)
        finally:
            place.next = None

    @unseen(apply)
    def timed_part(transform, *args, **kwargs):
        place = here.__dict__.get("place")
        if place is None or place.next is None or place.inside:
            return apply(transform, *args, **kwargs)
        place.inside = True
        start = now()
        try:
            result = apply(transform, *args, **kwargs)
        finally:
            place.inside = False
        end = now()
        try:
            name = REC.names.text(events.OF_MONAI + type(transform).__name__)
            again = events.MAKES_THE_SAME if _makes_the_same(transform) else 0
            REC.emit(events.TRANSFORM, start, end, name, again, events.transform_bits(0, place.next))
            place.next += 1
        except Exception:
            report_fault("transform")
        return result

    module.Compose.__call__ = timed_pipeline
    module.apply_transform = timed_part


def _makes_the_same(transform):
    """MONAI's own rule, that of its CacheDataset."""
    plain, random = monai_classes()
    return isinstance(transform, plain) and not isinstance(transform, random)


def monai_classes():
    """The class of MONAI's transforms, and that of its random ones."""
    module = sys.modules["monai.transforms.transform"]
    return module.Transform, getattr(module, "RandomizableTrait", None) or module.Randomizable


def _patch(compose, method):
    original = getattr(compose, method)

    @unseen(original)
    def timed(self, *args, **kwargs):
        if is_compiling() or not fetching.STATE.timing_samples or not REC.on:
            return original(self, *args, **kwargs)
        real = self.transforms
        if not isinstance(real, (list, tuple)) or any(isinstance(part, _TimedPart) for part in real):
            return original(self, *args, **kwargs)
        fetching.STATE.sample_cost_ns = fetching.ITEM_COST_NS + PART_COST_NS * len(real)
        self.transforms = [_TimedPart(part, place) for place, part in enumerate(real)]
        try:
            return original(self, *args, **kwargs)
        finally:
            self.transforms = real

    setattr(compose, method, timed)
