"""The DataLoader as the main process sees it: iterations, waits, and its workers."""

import functools
import sys
import weakref
from typing import Any

from torch import is_grad_enabled
from torch._C import DisableTorchFunction
from torch.utils.data.sampler import BatchSampler

from .. import ceilings, events, in_place, stacks
from ..batches import samples_in, weigh
from ..experiments import schedule
from ..identity import ByIdentity
from ..recorder import REC, now, quietly, report_fault
from ..settings import SETTINGS
from ..sites import user_line
from ..wrap import is_compiling
from . import modules, sampling

_loaders: Any = ByIdentity()  # DataLoader -> [names id, how often iterated]
_loader_of: Any = ByIdentity()  # iterator -> weak reference to its loader
_built_before: Any = {}  # description of a loader -> (its entry, weak reference to the last loader)
_STATE = "_flatout_state"  # of an iterator: [names id of its loader, worker pids, batches delivered]
MEASURE_BYTES_EVERY = 256
_ATTRIBUTES = (*(name for name, setting in SETTINGS.items() if setting.keyword), "drop_last", "timeout")


def install(dataloader):
    """Patch ``torch.utils.data.dataloader``."""
    for name in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        if not hasattr(dataloader, name):
            report_fault("no %s in this torch" % name)
            return
    workers = dataloader._MultiProcessingDataLoaderIter
    for function, begins, ended in (
        (dataloader.DataLoader.__iter__, _iter_begins, _iter_ended),
        (dataloader._BaseDataLoaderIter.__init__, _making, _made),
        (dataloader._BaseDataLoaderIter.__next__, _next_begins, _next_ended),
        (dataloader._BaseDataLoaderIter._next_index, sampling.begins, sampling.ended),
        (workers._shutdown_workers, _shutdown_begins, _shutdown_ended),
    ):
        function = in_place.innermost(function)  # a setting of the loader is put around it
        if not in_place.is_instrumented(function):
            in_place.instrument(function, begins, ended)
    if ceilings.MODE is not None:
        dataloader.DataLoader.__iter__ = _with_ceilings(dataloader.DataLoader.__iter__)


# untested: only in trainings that flatout ends, which save no coverage
def _with_ceilings(original):
    @functools.wraps(original)
    def __iter__(self):
        if not REC.on:
            return original(self)
        return ceilings.iterate(self, original, samples_in, lambda loader: _loaders[loader][0])

    return __iter__


def _making(iterator, loader):
    return iterator, loader


@quietly
def _made(call, result):
    """Keep which loader an iterator belongs to: not every subclass makes its iterators in ``DataLoader.__iter__``."""
    iterator, loader = call
    _loader_of[iterator] = weakref.ref(loader)
    if REC.live is not None:
        REC.live.made(iterator, loader)


@quietly
def _found_late(iterator):
    """An iterator whose start was not seen: made without ``DataLoader.__iter__``, or before the recording began."""
    loader = _loader_of.get(iterator, _nothing)()
    if loader is None:
        iterator.__dict__[_STATE] = None
        return
    at = now()
    _iteration_started(loader, iterator, at, at)
    iterator.__dict__[_STATE][2] = getattr(iterator, "_num_yielded", 0)


# untested: stands where nothing is to be done
def _nothing():
    return None


def _iter_begins(loader):
    if not REC.on:
        return None
    if REC.live is not None:
        REC.live.iterator_asked(loader)
    return now(), loader


def _iter_ended(call, iterator):
    start, loader = call
    if REC.live is not None:
        REC.live.iterator_given(loader)
    if iterator is not call:
        _iteration_started(loader, iterator, start, now())


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
    key = tuple(str(fields[name]) for name in ("site", "dataset", "dataset_len", "sampler", *_ATTRIBUTES))
    entry, before = _built_before.get(key, (None, None))
    if entry is not None and before() is not None:
        stacks.wait_until_frames_are_released()  # the last loader may be over, but for the frame that made it
    # Two loaders that live at the same time (training and validation through one function) stay two.
    if entry is None or before() is not None:
        entry = [REC.names.add("loader", **fields), 0]
    else:
        REC.names.write(entry[0], "loader", {"rebuilt": True})
    _built_before[key] = (entry, weakref.ref(loader))
    return entry


def _describe(loader):
    dataset = loader.dataset
    fields = {name: getattr(loader, name, None) for name in _ATTRIBUTES}
    fields["iterable"] = getattr(loader, "_dataset_kind", 0) == 1
    fields["dataset"] = _class(dataset)
    try:
        with DisableTorchFunction():  # unseen by a mode of the user's
            fields["dataset_len"] = len(dataset)
    except Exception:  # a user-defined __len__ may do anything
        fields["dataset_len"] = None
    fields["sampler"] = _class(getattr(loader, "sampler", None))
    batch_sampler: Any = getattr(loader, "batch_sampler", None)
    if fields["batch_size"] is None and type(batch_sampler) is BatchSampler:  # as accelerate gives a loader its batches
        fields["batch_size"] = batch_sampler.batch_size
    fields["batch_sampler"] = _class(batch_sampler)
    fields["batches"] = _length(batch_sampler)
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


def _length(batch_sampler):
    """Batches of a pass, where asking for them runs no code of the user's; else None."""
    theirs = (batch_sampler, getattr(batch_sampler, "batch_sampler", None))  # accelerate wraps another one
    known = ("torch.", "accelerate.")
    for one in (*theirs, *(getattr(each, "sampler", None) for each in theirs)):
        if one is not None and not type(one).__module__.startswith(known):
            return None
    try:
        with DisableTorchFunction():  # unseen by a mode of the user's
            return len(batch_sampler)
    except Exception:  # an iterable data set, or a sampler without a length
        return None


def _class(thing):
    return None if thing is None else "%s.%s" % (type(thing).__module__, type(thing).__qualname__)


def _next_begins(iterator):
    if is_compiling():
        return None
    if not REC.on:
        return schedule.batch_awaited(iterator)
    if _STATE not in iterator.__dict__:
        _found_late(iterator)
    state = iterator.__dict__.get(_STATE)
    if state is None:  # its loader is unknown, or gone
        return None
    if REC.live is not None:
        REC.live.awaited(iterator)
    worker, ready = _outlook(REC.live.source(iterator) if REC.live is not None else iterator) if state[1] else (-1, 0)
    before = modules.hold(True)
    return now(), before, iterator, state, worker, ready


def _next_ended(call, batch):
    end = now()
    if type(call) is not tuple:  # the recording is over
        schedule.batch_arrived(call, batch, batch is not call)
        return
    start, before, iterator, state, worker, ready = call
    modules.hold(before)
    if batch is call:
        if sys.exc_info()[0] is StopIteration:
            _iteration_ended(iterator, start, end)
            if REC.live is not None:
                REC.live.pass_ended(iterator)
        return
    try:
        index = state[2]
        state[2] = index + 1
        samples = samples_in(batch)
        bits = events.batch_bits(samples, worker, ready, is_grad_enabled())
        REC.emit(events.BATCH_WAIT, start, end, state[0], index, bits)
        REC.iterations += 1
        REC.wait_ns += end - start
        if REC.live is not None:
            REC.live.arrived(iterator, samples)
        if index % MEASURE_BYTES_EVERY == 0:
            size, layout = weigh(batch)
            REC.names.write(state[0], "loader", {"batch_bytes": size, "batch_layout": layout[:8]})
    except Exception:
        report_fault("batch")


def _outlook(iterator):
    """The worker that makes the next batch (-1: unknown), and the number of ready batches."""
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


def _shutdown_begins(iterator):
    return (now(), iterator) if REC.on and not getattr(iterator, "_shutdown", True) else None


def _shutdown_ended(call, result):
    start, iterator = call
    _iteration_ended(iterator, start, now())
