"""Workers that a setting keeps from pass to pass, where the training's own loader would start them anew.

New workers get the data set as it is then, and their start draws a random number: so that kept ones train the same,
they are started anew where the data set has changed, and the number is drawn all the same.
"""

import sys
import zlib

import torch
from torch.utils.data import IterDataPipe

_KEPT = "_flatout_kept"  # on a loader: the state of its data set at the latest pass
_DEPTH = 4
_MOST = 2000  # values of a data set that are looked at
_LARGE = 1 << 20  # bytes of an array whose content is not


def keep(loader):
    """Note that a setting keeps the workers of this loader."""
    loader.__dict__[_KEPT] = None


def release(loader):
    """Let each pass start its workers anew again, if it was a setting that kept them."""
    if loader.__dict__.pop(_KEPT, release) is not release:
        loader.__dict__.update(persistent_workers=False, _iterator=None)


def pass_begins(loader):
    """A pass over any loader is about to begin."""
    if _KEPT not in loader.__dict__ or not loader.persistent_workers:
        return
    before = loader.__dict__[_KEPT]
    try:
        state = _state_of(loader.dataset, _DEPTH, [_MOST])
    except Exception:  # an attribute that cannot be looked at: new workers for each pass, as without the setting
        state = object()
    loader.__dict__[_KEPT] = state
    iterator = loader.__dict__.get("_iterator")
    if iterator is None:
        return
    if iterator._task_info:  # another pass goes on, with workers of its own from now on
        loader.__dict__["_iterator"] = None
    elif state != before:
        iterator._shutdown_workers()
        loader.__dict__["_iterator"] = None
    else:
        # As each new iterator does, for the seed of its workers; and for one that a data pipe's workers share.
        for _ in range(1 + isinstance(loader.dataset, IterDataPipe)):
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)


def _state_of(thing, depth, left):
    """What compares unequal once a data set was changed, of the parts that are small or named."""
    left[0] -= 1
    if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
        return thing
    if isinstance(thing, torch.Tensor):
        return id(thing), None if thing.is_inference() else thing._version
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(thing, numpy.ndarray):
        content = None if thing.nbytes > _LARGE or thing.dtype.hasobject else zlib.crc32(thing.tobytes())
        return id(thing), thing.shape, content
    if depth <= 0 or left[0] <= 0:
        return id(thing)
    if isinstance(thing, dict):
        parts = list(thing.items())[: left[0]]
        return id(thing), len(thing), [(id(name), _state_of(part, depth - 1, left)) for name, part in parts]
    if isinstance(thing, (list, tuple)):
        return id(thing), len(thing), [_state_of(part, depth - 1, left) for part in thing[: left[0]]]
    return id(thing), [
        (name, _state_of(part, depth - 1, left)) for name, part in getattr(thing, "__dict__", {}).items()
    ]
