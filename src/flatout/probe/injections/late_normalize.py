"""Pictures stay uint8 until their batch is complete: conversion to float and Normalize follow on the whole batch.

On a CPU that saves the fixed cost of two transforms for each sample; to a GPU, a quarter of the bytes is copied, and it
computes the rest. The values are the same bit for bit: the transforms themselves are called. Only where a data set
returns its pictures untouched, and ``default_collate`` stacks them: no code of the user's sees an unconverted one.
"""

import functools
import sys
import threading
import weakref
from typing import Any

import torch
from torch.utils.data import dataloader, default_collate
from torch.utils.data._utils import fetch as fetchers

from .. import unconverted
from ..batches import rebuilt, tensors_in
from ..handed_over import NotHandedOver, calls_handed_over
from ..sample_memory import CHECKED
from ..unconverted import Unconverted, floats_of, register

# They do the same to each value of a channel.
_OF_VALUES = ("Normalize", "ConvertImageDtype", "ToDtype", "ToPureTensor")
_TO_UINT8 = ("ToTensor", "PILToTensor", "ToImage")
_CONTIGUOUS = "ToTensor"  # the others leave colours last in memory, as Pillow and NumPy have them
_MODES = ("L", "RGB")
_state = threading.local()  # codes: of the data set whose batch this thread fetches; inside: a pipeline runs


def install(injected, watch):
    """Patch both generations of ``Compose``, and what takes batches out of a loader."""
    register()
    unconverted.differs = functools.partial(_refuse_on, injected)
    handing = _Handing(injected)
    watch("torchvision.transforms.transforms", functools.partial(_patch, handing, "__call__"))
    watch("torchvision.transforms.v2._container", functools.partial(_patch, handing, "forward"))
    for name in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        _patch_iterator(injected, getattr(dataloader, name))
    setattr(fetchers._MapDatasetFetcher, "fetch", _fetching(fetchers._MapDatasetFetcher.fetch))  # noqa: B010


def _refuse_on(injected, device):
    injected.applied.pop("late_normalize", None)
    injected.refuse("late_normalize", "on %s the floats of a batch differ from those of the CPU" % device)


class _Handing:
    """What this process knows of the pictures that it leaves unconverted."""

    def __init__(self, injected):
        self._injected = injected
        self._compared = 0
        self._tails: Any = {}  # ids of a pipeline's parts -> the parts, and where they are split
        self.off = not injected.get("late_normalize")

    def tail(self, parts):
        """Length of the head of a pipeline, and the parts that can wait; None: there are none."""
        real = tuple(map(_real, parts))
        key = tuple(map(id, real))
        if key not in self._tails:
            self._tails[key] = (real, split(real))  # what keeps the parts keeps their ids
        return self._tails[key][1]

    def same(self, late, direct):
        """Compare the first pictures with those that the pipeline makes at once."""
        self._compared += 1
        if late.dtype == direct.dtype and late.stride() == direct.stride() and torch.equal(late, direct):
            return True
        self.off = True
        self._injected.refuse("late_normalize", "floats of a batch differ from those of its pictures")
        return False

    @property
    def compares(self):
        """True for the first pictures."""
        return self._compared < CHECKED


def _patch(handing, method, module):
    original = getattr(module.Compose, method)

    @functools.wraps(original)
    def composed(self, *inputs, **kwargs):
        given = self.transforms
        found = None
        if (
            not handing.off
            and len(inputs) == 1
            and not kwargs
            and isinstance(given, (list, tuple))
            and _is_handed_over()
        ):
            found = handing.tail(given)
        if found is None:
            return original(self, *inputs, **kwargs)
        head, parts = found
        self.transforms, _state.inside = given[:head], True
        try:
            picture = original(self, *inputs)
        finally:
            self.transforms, _state.inside = given, False
        pixels = _pixels(picture, type(_real(given[head])).__name__ == _CONTIGUOUS)
        if pixels is None:
            return _rest(picture, given[head:])
        if handing.compares:
            direct = _rest(picture, given[head:])
            with torch.no_grad():
                same = handing.same(Unconverted(pixels.unsqueeze(0), parts).floats[0], direct)
            if not same:
                return direct
        return Unconverted(pixels, parts)

    setattr(module.Compose, method, composed)


def _rest(picture, parts):
    for part in parts:
        picture = part(picture)
    return picture


def _is_handed_over():
    """True if the pipeline that asks was called where its result goes into a sample, and nowhere else."""
    codes = getattr(_state, "codes", None)
    if not codes or getattr(_state, "inside", False):
        return False
    frame = _outside(sys._getframe(2), _CALLERS)
    if frame is None or frame.f_lineno not in codes.get(frame.f_code, ()):
        return False
    # Who asks for the sample: the fetch, and not a data set that has this one inside.
    frame = frame.f_back
    return frame is not None and _is_of(frame, ("torch.utils.data", _PROBE))


def _outside(frame, names):
    while frame is not None and _is_of(frame, names):
        frame = frame.f_back
    return frame


def _is_of(frame, names):
    return str(frame.f_globals.get("__name__")).startswith(names)


_PROBE = __name__.rpartition(".injections")[0]
_CALLERS = ("torch.nn.modules.module", _PROBE)


def _fetching(original):
    known: Any = weakref.WeakKeyDictionary()  # fetcher -> the calls of its data set

    @functools.wraps(original)
    def fetch(self, possibly_batched_index):
        if self not in known:
            calls = _calls(self, self.auto_collation)
            known[self] = {} if isinstance(calls, str) else calls
        before, _state.codes = getattr(_state, "codes", None), known[self]
        try:
            return original(self, possibly_batched_index)
        finally:
            _state.codes = before

    return fetch


def _calls(source, batched):
    """As ``calls_handed_over`` gives them, of a loader or a fetcher; a text where pictures have to be converted."""
    if not batched or source.collate_fn is not default_collate:
        return "samples are not put together by default_collate"
    try:
        return calls_handed_over(source.dataset, _is_pipeline)
    except NotHandedOver as error:
        return str(error)
    except Exception as error:  # attributes of a user's data set may do anything
        return "%s: %s" % (type(error).__name__, error)


def _is_pipeline(value):
    return type(value).__name__ == "Compose" and type(value).__module__.startswith("torchvision.transforms.")


def _pixels(picture, contiguous):
    """A picture or an array of one as uint8 (C, H, W), laid out as its floats; None: it is of another kind."""
    if torch.get_default_dtype() != torch.float32:
        return None
    numpy: Any = sys.modules.get("numpy")
    mode = getattr(picture, "mode", None)
    if numpy is None or not (mode in _MODES or (mode is None and _is_array_of_one(picture))):
        return None
    pixels = torch.from_numpy(numpy.array(picture))
    pixels = pixels.unsqueeze(2) if pixels.dim() == 2 else pixels
    pixels = pixels.permute(2, 0, 1)
    return pixels.contiguous() if contiguous else pixels


def _is_array_of_one(picture):
    return getattr(getattr(picture, "dtype", None), "str", "") == "|u1" and picture.ndim == 3


def split(parts):
    """The number of parts before the one that makes a tensor, and transforms that make floats of the uint8.

    Args:
        parts: a pipeline's, as a tuple.

    Returns:
        None if the pipeline does not end with conversion to float32, and Normalize at most.
    """
    for place, part in enumerate(parts):
        name = type(part).__name__
        if name not in _TO_UINT8 or not _of_torchvision(part):
            continue
        after = parts[place + 1 :]
        if any(type(one).__name__ not in _OF_VALUES or not _of_torchvision(one) for one in after):
            return None
        if name == "ToTensor":
            return place, (_scaled, *after)
        if after and _converts(after[0]):
            after = (_scaled, *after[1:])
        try:
            made = functools.reduce(lambda made, one: one(made), after, torch.zeros(1, 3, 1, 1, dtype=torch.uint8))
        except Exception:  # of a pipeline that does not work, or that is for other channels
            return None
        return (place, after) if made.dtype == torch.float32 else None
    return None


def _converts(part):
    """True for the first generation's conversion to float32; the second multiplies by a number, on a GPU, too."""
    kind = type(part)
    return kind.__name__ == "ConvertImageDtype" and ".v2" not in kind.__module__ and part.dtype == torch.float32


def _scaled(pixels):
    """As ``ToTensor`` and ``ConvertImageDtype`` do on the CPU.

    By a tensor: CUDA multiplies by the reciprocal of a number, which gives other last bits.
    """
    floats = pixels.to(torch.float32)
    return floats.div_(torch.full((), 255.0, device=floats.device))


def _real(part):
    return getattr(part, "_part", part)  # one that the probe times


def _of_torchvision(part):
    hooked = getattr(part, "_forward_hooks", None) or getattr(part, "_forward_pre_hooks", None)
    return type(part).__module__.startswith("torchvision.transforms.") and not hooked


def _patch_iterator(injected, kind):
    original, begin = kind._next_data, kind.__init__

    @functools.wraps(original)
    def _next_data(self):
        return _given(injected, original(self))

    @functools.wraps(begin)
    def init(self, loader):
        calls = _calls(loader, loader._auto_collation)
        if isinstance(calls, str) and "late_normalize" not in injected.applied:
            injected.refuse("late_normalize", calls)
        begin(self, loader)

    kind._next_data, kind.__init__ = _next_data, init


def _given(injected, batch):
    """A batch as the training gets it: floats, unless a GPU may compute them."""
    try:
        if not any(type(tensor) is Unconverted for tensor in tensors_in(batch)):
            return batch
        if not all(unconverted.same_on.values()):
            return rebuilt(batch, floats_of)
        injected.refused.pop("late_normalize", None)  # of another loader, such as that of the validation
        injected.done("late_normalize")
        return batch if torch.cuda.is_initialized() else rebuilt(batch, floats_of)
    except Exception as error:  # a container of the user's may do anything; what is in it converts itself
        injected.refuse("late_normalize", "%s: %s" % (type(error).__name__, error))
        return batch
