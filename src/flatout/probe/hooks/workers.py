"""The worker process: waiting for work, handing batches over, starting and ending."""

import inspect
import multiprocessing.queues
import os
from typing import Any

import torch

from .. import events, stacks
from ..recorder import REC, WORKER_CHUNK_BYTES, now, quietly, report_fault
from ..unbound import unseen
from . import fetching, modules

_STARTING: Any = {}  # of this worker: its id, and when its loop was entered


def install(worker_module):
    """Patch ``torch.utils.data._utils.worker``. The name stays, so spawn finds it by reference."""
    worker_module._worker_loop = _recorded_loop(worker_module._worker_loop)


def _recorded_loop(original):
    try:
        order = list(inspect.signature(original).parameters)
    except (TypeError, ValueError):
        order = []

    @unseen(original)
    # untested: runs under the name of another file, which coverage.py does not know
    def _worker_loop(*args, **kwargs):
        args = _prepare(list(args), kwargs, order)
        try:
            return original(*args, **kwargs)
        finally:
            _finish()

    return _worker_loop


def _prepare(args, kwargs, order):
    """Set up recording in this worker; the arguments come back with timed queues in them."""
    try:
        if not REC.run or REC.control.command() == 1:
            return args
        worker = _argument(args, kwargs, order, "worker_id")
        REC.open(WORKER_CHUNK_BYTES)
        REC.save_process(worker=worker)
        time_pickling(events.SERIALIZE)
        for name, wrapper in (("index_queue", _IndexQueue), ("data_queue", _DataQueue)):
            if name in kwargs:
                kwargs[name] = wrapper(kwargs[name])
            elif name in order and order.index(name) < len(args):
                args[order.index(name)] = wrapper(args[order.index(name)])
        modules.hold(True)  # a pipeline of transforms may be made of modules
        stacks.start()
        _STARTING.update(worker=worker, loop_ns=now())
    except Exception:
        report_fault("worker start")
    return args


def _argument(args, kwargs, order, name):
    if name in kwargs:
        return kwargs[name]
    place = order.index(name)
    return args[place]


@quietly
def _ready():
    """The worker's own set-up and the user's ``worker_init_fn`` are done."""
    at = now()
    REC.emit(events.WORKER_START, REC.process["start_ns"], at, 0, _STARTING["worker"], at - _STARTING["loop_ns"])
    REC.save_process(threads=torch.get_num_threads())


@quietly
def _finish():
    if REC.file is not None and REC.process.get("pid") == os.getpid():
        stacks.stop()
        REC.close({"code": 0})


class _IndexQueue:
    """The index queue of a worker: times the wait for work."""

    def __init__(self, queue):
        self._flatout_queue = queue
        self._flatout_settled = False

    def __getattr__(self, name):
        return getattr(self._flatout_queue, name)

    def get(self, *args, **kwargs):
        if not REC.on:
            return self._flatout_queue.get(*args, **kwargs)
        if not self._flatout_settled:
            self._flatout_settled = True
            _ready()
        start = now()
        try:
            item = self._flatout_queue.get(*args, **kwargs)
        finally:
            try:
                REC.emit(events.INDEX_WAIT, start, now())
            except Exception:
                report_fault("index queue")
        if isinstance(item, tuple) and item and isinstance(item[0], int):
            fetching.STATE.current_batch = item[0]
        if REC.control.command():
            REC.on = False
        return item


class _DataQueue:
    """The queue that takes batches: marks the hand-over."""

    def __init__(self, queue):
        self._flatout_queue = queue

    def __getattr__(self, name):
        return getattr(self._flatout_queue, name)

    def put(self, item, *args, **kwargs):
        if not REC.on:
            return self._flatout_queue.put(item, *args, **kwargs)
        start = now()
        self._flatout_queue.put(item, *args, **kwargs)
        try:
            index = item[0] if isinstance(item, tuple) and isinstance(item[0], int) else -1
            REC.emit(events.PUT, start, now(), 0, index)
            REC.flush()
        except Exception:
            report_fault("data queue")


class _TimedPickler:
    """Stands in for the pickler of multiprocessing's queues and times it."""

    def __init__(self, pickler, kind):
        self._flatout_pickler = pickler
        self._kind = kind

    def __getattr__(self, name):
        return getattr(self._flatout_pickler, name)

    def dumps(self, *args, **kwargs):
        start = now()
        data = self._flatout_pickler.dumps(*args, **kwargs)
        if REC.on and self._kind == events.SERIALIZE:
            self._emit(start, len(data))
        return data

    def loads(self, data, *args, **kwargs):
        start = now()
        item = self._flatout_pickler.loads(data, *args, **kwargs)
        if REC.on and self._kind == events.DESERIALIZE:
            self._emit(start, len(data))
        return item

    def _emit(self, start, size):
        try:
            REC.emit(self._kind, start, now(), 0, size)
        except Exception:
            report_fault("pickling")


def time_pickling(kind):
    """Time the pickler of multiprocessing's queues in this process, for one direction."""
    queues: Any = multiprocessing.queues
    pickler = queues._ForkingPickler
    if isinstance(pickler, _TimedPickler):
        pickler = pickler._flatout_pickler
    queues._ForkingPickler = _TimedPickler(pickler, kind)
