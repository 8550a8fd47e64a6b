"""How a batch is made: the fetch, its samples and its collate, in a worker or in the main process."""

import functools
import time

from . import events
from .recorder import REC, now, quietly, report_fault
from .scheduling import major_faults, process_io, thread_times

ITEM_COST_NS = 1_500  # what timing one sample costs; see benchmarks/overhead
CLOSELY_COST_NS = 30_000  # what reading the kernel's counters around a fetch costs, caches cold
CLOSELY_BUDGET = 0.003  # share of the fetches' own time that looking closely may cost
LONG_NS = 10_000_000  # from here on what one fetch did is noted even where it was not looked at closely


class _SampleTimer:
    """Stands before the data set during one fetch and times each sample."""

    def __init__(self, dataset):
        self._flatout_dataset = dataset

    def __getattr__(self, name):
        return getattr(self._flatout_dataset, name)

    def __getitem__(self, index):
        start = now()
        item = self._flatout_dataset[index]
        end = now()
        try:
            REC.emit(events.ITEM, start, end, 0, index if type(index) is int else -1)
        except Exception:
            report_fault("sample")
        return item


class _StreamTimer:
    """Stands before an iterable data set's iterator during one fetch."""

    def __init__(self, iterator):
        self._flatout_iterator = iterator

    def __iter__(self):
        return self

    def __next__(self):
        start = now()
        item = next(self._flatout_iterator)
        try:
            REC.emit(events.ITEM, start, now(), 0, -1)
        except Exception:
            report_fault("sample")
        return item


def install(fetch_module):
    """Patch ``torch.utils.data._utils.fetch``."""
    base = fetch_module._BaseDatasetFetcher
    base.__init__ = _with_timed_collate(base.__init__)
    for name, field, stand_in in (
        ("_MapDatasetFetcher", "dataset", _SampleTimer),
        ("_IterableDatasetFetcher", "dataset_iter", _StreamTimer),
    ):
        fetcher = getattr(fetch_module, name)
        fetcher.fetch = _timed_fetch(fetcher.fetch, field, stand_in)


def _with_timed_collate(original):
    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        collate = getattr(self, "collate_fn", None)
        if collate is not None:
            self.collate_fn = _timed_collate(collate)

    return __init__


def _timed_collate(collate):
    @functools.wraps(collate, updated=())
    def timed_collate(data):
        if not REC.on:
            return collate(data)
        start = now()
        result = collate(data)
        try:
            REC.emit(events.COLLATE, start, now())
        except Exception:
            report_fault("collate")
        return result

    return timed_collate


def _timed_fetch(original, field, stand_in):
    """Time every fetch; count what the kernel knows of it, and time its samples one by one, within the budget.

    The stand-in is in place only while a fetch runs, so nothing else ever meets it.
    """

    def closely(self, indices):
        before = _counters()
        real = getattr(self, field)
        setattr(self, field, stand_in(real))
        timing_samples[0] = True
        start = now()
        try:
            return original(self, indices)
        finally:
            end = now()
            setattr(self, field, real)
            timing_samples[0] = False
            _fetched(self, _samples(indices), start, end, before)

    @functools.wraps(original)
    def fetch(self, indices):
        if not REC.on:
            return original(self, indices)
        left = self.__dict__.get("_flatout_left", 0)
        if left <= 0:
            return closely(self, indices)
        self._flatout_left = left - 1
        before = _times() if "_flatout_long" in self.__dict__ else None
        start = now()
        try:
            return original(self, indices)
        finally:
            end = now()
            try:
                REC.emit(events.FETCH, start, end, 0, current_batch[0], _samples(indices))
                if end - start >= LONG_NS:
                    _long_fetch(self, start, end, before)
            except Exception:
                report_fault("fetch")

    return fetch


def _times():
    """The clocks of this thread and of the process: 3 us, for each fetch of a loader that has long ones."""
    try:
        return thread_times(), time.process_time_ns()
    except Exception:
        report_fault("counters")
        return None


def _long_fetch(fetcher, start, end, before):
    """What a long fetch did cannot be told from the short ones beside it that were looked at closely.

    The first one only switches the clocks on: a loader without long fetches pays nothing.
    """
    fetcher._flatout_long = True
    if before is None:
        return
    times, cpu = before
    after = thread_times()
    if times and after:
        REC.emit(events.FETCH_SCHED, start, end, 0, after[0] - times[0], after[1] - times[1])
    REC.emit(events.FETCH_PROCESS, start, end, 0, time.process_time_ns() - cpu, 0)


def _samples(indices):
    return len(indices) if type(indices) in (list, tuple) else 1


def _counters():
    try:
        return thread_times(), time.process_time_ns(), process_io(), major_faults()
    except Exception:
        report_fault("counters")
        return None


timing_samples = [False]  # whether the samples of the batch that is being fetched are timed
sample_cost_ns = [ITEM_COST_NS]  # grows with the parts that a sample is timed in
current_batch = [-1]  # index of the batch that the worker loop is working on


@quietly
def _fetched(fetcher, samples, start, end, before):
    cost = CLOSELY_COST_NS + sample_cost_ns[0] * samples
    fetcher._flatout_left = round(cost / (CLOSELY_BUDGET * max(end - start, 1))) - 1
    if before is None:
        return
    REC.emit(events.FETCH, start, end, 0, current_batch[0], samples)
    times, cpu, io, faults = before
    times_after, cpu_after, io_after, faults_after = _counters()
    if times and times_after:
        REC.emit(events.FETCH_SCHED, start, end, 0, times_after[0] - times[0], times_after[1] - times[1])
    if io and io_after:
        REC.emit(events.FETCH_IO, start, end, io_after[1] - io[1], io_after[0] - io[0], io_after[2] - io[2])
    REC.emit(events.FETCH_PROCESS, start, end, 0, cpu_after - cpu, faults_after - faults)
