"""How a batch is made: the fetch, its samples and its collate, in a worker or in the main process."""

import functools
import time

from . import events
from .recorder import REC, now, quietly, report_fault
from .scheduling import major_faults, process_io, thread_times

ITEM_COST_NS = 1_500  # what timing one sample costs; see benchmarks/overhead
ITEM_BUDGET = 0.003  # share of a sample's own time that timing it may cost


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
    """Time a fetch; time its samples one by one in as many batches as the budget allows.

    The stand-in is in place only while a fetch runs, so nothing else ever meets it.
    """

    @functools.wraps(original)
    def fetch(self, indices):
        if not REC.on:
            return original(self, indices)
        before = _counters()
        timing = _due(self)
        if timing:
            real = getattr(self, field)
            setattr(self, field, stand_in(real))
            timing_samples[0] = True
        start = now()
        try:
            return original(self, indices)
        finally:
            end = now()
            if timing:
                setattr(self, field, real)
                timing_samples[0] = False
            samples = len(indices) if isinstance(indices, (list, tuple)) else 1
            _fetched(self, samples, start, end, before)

    return fetch


def _due(fetcher):
    """Whether to time single samples in this batch: always while they are slow, seldom while fast."""
    count = fetcher.__dict__.get("_flatout_batches", 0)
    return count % fetcher.__dict__.get("_flatout_every", 1) == 0


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
    fetcher._flatout_batches = fetcher.__dict__.get("_flatout_batches", 0) + 1
    fetcher._flatout_every = max(1, round(sample_cost_ns[0] * max(samples, 1) / (ITEM_BUDGET * max(end - start, 1))))
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
