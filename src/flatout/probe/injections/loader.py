"""The training's DataLoader: workers, queue, batch size. Changed when a pass over it begins.

A pass without gradients is validation. Its DataLoader stays as it is, but for workers that can be kept.
"""

import contextlib
import functools
import importlib
from typing import Any

from torch import is_grad_enabled, set_num_threads
from torch.utils.data import BatchSampler
from torch.utils.data.dataloader import DataLoader

from ..settings import DEFAULT_PREFETCH_FACTOR, injected_by
from . import kept_workers
from .inherited_files import OwnFiles

_NO_WORKERS = "there are no workers: set num_workers too"
_MARK = "_flatout_set"  # on a loader that was changed
_MARK_OF_VALIDATION = "_flatout_set_for_validation"
_KEPT = "validation_workers_kept"
# Attributes of a DataLoader that the settings of a live trial change.
ATTRIBUTES = (
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "in_order",
    "worker_init_fn",
    "_DataLoader__multiprocessing_context",
)


def install(injected, watch):
    """Patch the start of a pass."""
    original = DataLoader.__iter__

    @functools.wraps(original)
    def __iter__(self):
        state = self.__dict__
        if is_grad_enabled():
            if state.pop(_MARK_OF_VALIDATION, False):  # the training's own, which was evaluated first
                kept_workers.release(self)
            # A subclass's own pass may end here once more.
            if not state.get(_MARK):
                state[_MARK] = True
                _set_all(self, injected)
        elif injected.get(_KEPT) and not state.get(_MARK) and not state.get(_MARK_OF_VALIDATION):
            state[_MARK_OF_VALIDATION] = True
            _keep_workers(self, injected)
        kept_workers.pass_begins(self)
        return original(self)

    DataLoader.__iter__ = __iter__


def _keep_workers(loader, injected):
    try:
        why = _set_persistent(loader, True)
    except Exception as error:  # of a subclass's own attributes
        why = "%s: %s" % (type(error).__name__, error)
    if not why:
        injected.refused.pop(_KEPT, None)  # for another DataLoader
        injected.done(_KEPT)
    elif _KEPT not in injected.applied:
        injected.refuse(_KEPT, "a validation's DataLoader has no workers" if why == _NO_WORKERS else why)


def _set_all(loader, injected):
    for name, why in set_on(loader, injected.wanted).items():
        if why:
            injected.refuse(name, why)
        else:
            injected.done(name)


def set_on(loader, wanted):
    """Set attributes of a DataLoader, for the iterators that it makes next.

    Args:
        loader: the DataLoader.
        wanted: name -> value; settings of other injectors, and None, are left out.

    Returns:
        Name -> the reason why it was refused, or None, of each setting of the loader.
    """
    found = {}
    for name in injected_by("loader"):
        if name == _KEPT:
            continue
        value = wanted.get(name)
        if value is None:
            continue
        try:
            found[name] = _SETTERS.get(name, functools.partial(_set_attribute, name))(loader, value)
        except Exception as error:
            found[name] = "%s: %s" % (type(error).__name__, error)
    return found


def _set_workers(loader, count):
    iterable = loader._dataset_kind == 1
    if iterable and not loader.num_workers and count:
        return "an iterable data set does not say how workers share it"
    state = loader.__dict__
    if not count:
        state.update(prefetch_factor=None, persistent_workers=False)
        state["_DataLoader__multiprocessing_context"] = None
    elif not loader.num_workers:
        state.update(prefetch_factor=DEFAULT_PREFETCH_FACTOR)
        # New workers for each pass would cost a start each; before, there were none to keep.
        state.update(persistent_workers=True)
        kept_workers.keep(loader)
        state["worker_init_fn"] = OwnFiles(loader.worker_init_fn)
    state["num_workers"] = count
    return None


# untested: for settings to come: those that there are have functions of their own
def _set_attribute(name, loader, value):
    loader.__dict__[name] = value


def _set_with_workers(name, loader, value):
    if not loader.num_workers:
        return _NO_WORKERS
    loader.__dict__[name] = value
    return None


def _set_persistent(loader, value):
    before = loader.persistent_workers
    refused = _set_with_workers("persistent_workers", loader, value)
    if not refused and value and not before:
        kept_workers.keep(loader)
    return refused


def _set_order(loader, value):
    if not hasattr(loader, "in_order"):
        return "this torch has no in_order: 2.6 or newer has"
    return _set_with_workers("in_order", loader, value)


def _set_pinned(loader, value):
    from torch import cuda

    if value and not cuda.is_available():
        return "there is no GPU to pin memory for"
    loader.__dict__["pin_memory"] = value
    return None


def _set_method(loader, method):
    if not loader.num_workers:
        return _NO_WORKERS
    loader.multiprocessing_context = method
    return None


def _set_threads(loader, count):
    if not loader.num_workers:
        return _NO_WORKERS
    loader.__dict__["worker_init_fn"] = _Threads(count, loader.worker_init_fn)
    return None


def _set_batch_size(loader, size):
    sampler = loader.batch_sampler
    if type(sampler) is not BatchSampler:
        return "batches are made by %s" % type(sampler).__name__
    sampler.batch_size = size
    loader.__dict__["batch_size"] = size
    return None


class _Threads:
    """A ``worker_init_fn`` that bounds the threads of the libraries that compute in workers, then runs the user's."""

    def __init__(self, count, then):
        self._count, self._then = count, then

    def __call__(self, worker):
        import sys

        set_num_threads(self._count)
        cv2 = sys.modules.get("cv2")
        if cv2 is not None:
            cv2.setNumThreads(0 if self._count == 1 else self._count)
        with contextlib.suppress(ImportError):  # it is installed with scikit-learn, and reaches BLAS and OpenMP
            importlib.import_module("threadpoolctl").threadpool_limits(self._count)
        if self._then is not None:
            self._then(worker)


# Settings that take more than setting the attribute of that name. A setter returns the reason why it refuses.
_SETTERS: Any = {
    "num_workers": _set_workers,
    "prefetch_factor": functools.partial(_set_with_workers, "prefetch_factor"),
    "persistent_workers": _set_persistent,
    "in_order": _set_order,
    "pin_memory": _set_pinned,
    "start_method": _set_method,
    "worker_threads": _set_threads,
    "batch_size": _set_batch_size,
}
