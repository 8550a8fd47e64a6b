"""The DataLoader as the main process sees it: iterations, waits, and what its workers are."""

import functools
import weakref
from typing import Any

from torch import is_grad_enabled

from . import ceilings, events, modules
from .batches import samples_in, weigh
from .patching import is_compiling
from .recorder import REC, now, quietly, report_fault
from .sites import user_line

_loaders: Any = weakref.WeakKeyDictionary()  # DataLoader -> [names id, how often iterated]
_built_before: Any = {}  # what describes a loader -> (its entry, weak reference to the last one)
_STATE = "_flatout_state"  # of an iterator: [names id of its loader, worker pids, batches delivered]
_LOADER = "_flatout_loader"  # of an iterator: weak reference to the loader it was made for
MEASURE_BYTES_EVERY = 256
_SETTINGS = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "in_order",
    "drop_last",
    "timeout",
)


def install(dataloader):
    """Patch ``torch.utils.data.dataloader``."""
    dataloader.DataLoader.__iter__ = _timed_iter(dataloader.DataLoader.__iter__)
    for name in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        if not hasattr(dataloader, name):
            report_fault("no %s in this torch" % name)
            return
    base = dataloader._BaseDataLoaderIter
    base.__init__ = _remembering(base.__init__)
    base.__next__ = _timed_next(base.__next__)
    # DataLoader iterators offer ``next`` under a second name in some versions.
    if "next" in vars(base):
        base.next = base.__next__
    workers = dataloader._MultiProcessingDataLoaderIter
    workers._shutdown_workers = _timed_shutdown(workers._shutdown_workers)


def _remembering(original):
    """Keep which loader an iterator belongs to: not every subclass makes its iterators in ``DataLoader.__iter__``."""

    @functools.wraps(original)
    def __init__(self, loader, *args, **kwargs):
        original(self, loader, *args, **kwargs)
        try:
            self.__dict__[_LOADER] = weakref.ref(loader)
        except Exception:
            report_fault("loader")

    return __init__


@quietly
def _found_late(iterator):
    """An iterator whose start was not seen: made past ``DataLoader.__iter__``, or before the recording began."""
    loader = iterator.__dict__.get(_LOADER, _nothing)()
    if loader is None:
        iterator.__dict__[_STATE] = None
        return
    at = now()
    _iteration_started(loader, iterator, at, at)
    iterator.__dict__[_STATE][2] = getattr(iterator, "_num_yielded", 0)


def _nothing():
    return None


def _timed_iter(original):
    def started(self):
        start = now()
        iterator = original(self)
        _iteration_started(self, iterator, start, now())
        return iterator

    @functools.wraps(original)
    def __iter__(self):
        if not REC.on:
            return original(self)
        if ceilings.MODE is not None:
            return ceilings.iterate(self, started, samples_in, lambda loader: _loaders[loader][0])
        return started(self)

    return __iter__


@quietly
def _iteration_started(loader, iterator, start, end):
    known = _loaders.get(loader)
    if known is None:
        known = _loaders[loader] = _known_again(loader)
    number, iteration = known
    known[1] += 1
    REC.emit(events.ITER_START, start, end, number, iteration)
    pids = [worker.pid for worker in getattr(iterator, "_workers", ())]
    before = iterator.__dict__.get(_STATE)
    if pids and (before is None or before[1] != pids):
        REC.names.add("workers", loader=number, iteration=iteration, pids=pids)
    # On the iterator itself, which is never pickled nor copied: a look-up in the hot path costs least there.
    iterator.__dict__[_STATE] = [number, pids, 0]


def _known_again(loader):
    """The entry of a loader seen for the first time: that of its predecessor when it is one built anew each epoch."""
    fields = _describe(loader)
    key = tuple(str(fields[name]) for name in ("site", "dataset", "dataset_len", "sampler", *_SETTINGS))
    entry, before = _built_before.get(key, (None, None))
    # Two loaders that live at the same time (training and validation through one function) stay two.
    if entry is None or before() is not None:
        entry = [REC.names.add("loader", **fields), 0]
    else:
        REC.names.write(entry[0], "loader", {"rebuilt": True})
    _built_before[key] = (entry, weakref.ref(loader))
    return entry


def _describe(loader):
    dataset = loader.dataset
    fields = {name: getattr(loader, name, None) for name in _SETTINGS}
    fields["iterable"] = getattr(loader, "_dataset_kind", 0) == 1
    fields["dataset"] = _class(dataset)
    try:
        fields["dataset_len"] = len(dataset)
    except Exception:  # the user's own __len__ may do anything
        fields["dataset_len"] = None
    fields["sampler"] = _class(getattr(loader, "sampler", None))
    fields["batch_sampler"] = _class(getattr(loader, "batch_sampler", None))
    collate = getattr(loader, "collate_fn", None)
    fields["collate_fn"] = getattr(collate, "__qualname__", None) or _class(collate)
    context = getattr(loader, "multiprocessing_context", None)
    method = getattr(context, "_name", None)
    if method is None and loader.num_workers:
        import multiprocessing

        method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_context().get_start_method()
    fields["start_method"] = method
    fields["site"] = user_line()
    return fields


def _class(thing):
    return None if thing is None else "%s.%s" % (type(thing).__module__, type(thing).__qualname__)


def _timed_next(original):
    @functools.wraps(original)
    def __next__(self):
        if not REC.on or is_compiling():
            return original(self)
        if _STATE not in self.__dict__:
            _found_late(self)
        state = self.__dict__.get(_STATE)
        if state is None:  # its loader is not known, or gone
            return original(self)
        worker, ready = _outlook(self) if state[1] else (-1, 0)
        before = modules.hold(True)
        start = now()
        try:
            batch = original(self)
        except StopIteration:
            _iteration_ended(self, start, now())
            raise
        finally:
            modules.hold(before)
        end = now()
        try:
            index = state[2]
            state[2] = index + 1
            bits = events.batch_bits(samples_in(batch), worker, ready, is_grad_enabled())
            REC.emit(events.BATCH_WAIT, start, end, state[0], index, bits)
            REC.iterations += 1
            REC.wait_ns += end - start
            if index % MEASURE_BYTES_EVERY == 0:
                size, layout = weigh(batch)
                REC.names.write(state[0], "loader", {"batch_bytes": size, "batch_layout": layout[:8]})
        except Exception:
            report_fault("batch")
        return batch

    return __next__


def _outlook(iterator):
    """Which worker the next batch is waited from (-1: unknown) and how many batches are ready."""
    try:
        tasks = iterator._task_info
        info = tasks.get(iterator._rcvd_idx)
        worker = info[0] if info and getattr(iterator, "_in_order", True) else -1
        # Batches that came out of order lie in _task_info; the others in the queue.
        early = len(info) == 2 if info else False
        return worker, iterator._data_queue.qsize() + early
    except AttributeError:
        return -1, 0
    except NotImplementedError:  # no sem_getvalue on this system
        return worker, 0


@quietly
def _iteration_ended(iterator, start, end):
    state = iterator.__dict__.get(_STATE)
    if state is not None:
        REC.emit(events.ITER_END, start, end, state[0])


def _timed_shutdown(original):
    @functools.wraps(original)
    def _shutdown_workers(self):
        if not REC.on or getattr(self, "_shutdown", True):
            return original(self)
        start = now()
        try:
            return original(self)
        finally:
            _iteration_ended(self, start, now())

    return _shutdown_workers
