"""flatout's own loader as the training process sees it: waits in the training thread, fetches in the loader's threads.

Its process backend is torch's DataLoader, which is recorded as such.
"""

import functools
import threading
from typing import Any

from torch import is_grad_enabled

from .. import events
from ..experiments import schedule
from ..recorder import REC, now, report_fault
from ..scheduling import thread_times
from ..sites import user_line
from . import modules

_numbers: Any = {}  # id of a batch builder -> names id of its loader
_last_end = threading.local()


def install(image_loader):
    """Patch ``flatout.loader.image_loader``."""
    loader = image_loader.ImageLoader
    loader.__iter__ = _timed_iter(loader.__iter__)
    builder = image_loader.BatchBuilder
    builder.fill = _timed_fill(builder.fill)


def _describe(loader):
    pixels = loader._builder.pixels
    return {
        "num_workers": loader.choice.workers,
        "threads": True,
        "batch_size": loader.order.batch_size,
        "prefetch_factor": None,
        "pin_memory": loader._pin,
        "persistent_workers": True,
        "in_order": True,
        "drop_last": loader.order.drop_last,
        "iterable": False,
        "dataset": "%s (%s)" % (type(loader._builder.source).__name__, pixels.decoder),
        "dataset_len": loader.order.count,
        "start_method": None,
        "batch_bytes": loader.order.batch_size * 3 * pixels.size * pixels.size,
        "site": user_line(),
    }


def _timed_iter(original):
    @functools.wraps(original)
    def __iter__(self):
        if not REC.on or self.choice.backend != "threads":
            return original(self)
        try:
            key = id(self._builder)
            number = _numbers.get(key)
            if number is None:
                number = _numbers[key] = REC.names.add("loader", **_describe(self))
            begin = now()
            REC.emit(events.ITER_START, begin, begin, number, self.epoch)
        except Exception:
            report_fault("image loader")
            return original(self)
        return _timed(original(self), self, number)

    return __iter__


def _timed(batches, loader, number):
    """The batches, each wait for one timed."""
    index = 0
    try:
        while True:
            ready_before = loader.stats.ready
            before = modules.hold(True)
            experiment = None if REC.on else schedule.batch_awaited()
            start = now()
            try:
                batch = next(batches)
            except StopIteration:
                schedule.batch_arrived(experiment, None, False)
                return
            finally:
                modules.hold(before)
            end = now()
            schedule.batch_arrived(experiment, batch, True)
            if REC.on:
                try:
                    bits = events.batch_bits(len(batch), -1, loader.stats.ready - ready_before, is_grad_enabled())
                    REC.emit(events.BATCH_WAIT, start, end, number, index, bits)
                    REC.iterations += 1
                    REC.wait_ns += end - start
                except Exception:
                    report_fault("image loader")
            index += 1
            yield batch
    finally:
        batches.close()
        if REC.on:
            end = now()
            REC.emit(events.ITER_END, end, end, number)


def _timed_fill(original):
    @functools.wraps(original)
    def fill(self, batch, slots, places, epoch):
        number = _numbers.get(id(self))
        if not REC.on or number is None:
            return original(self, batch, slots, places, epoch)
        ident = threading.get_ident()
        REC.fetchers.setdefault(ident)
        before = thread_times()
        start = now()
        try:
            return original(self, batch, slots, places, epoch)
        finally:
            end = now()
            try:
                idle_since = getattr(_last_end, "at", None)
                if idle_since is not None:
                    REC.emit(events.INDEX_WAIT, idle_since, start)
                _last_end.at = end
                REC.emit(events.FETCH, start, end, number, -1, len(slots))
                after = thread_times()
                if before and after:
                    REC.emit(events.FETCH_SCHED, start, end, 0, after[0] - before[0], after[1] - before[1])
            except Exception:
                report_fault("image loader")

    return fill
