"""The making of a batch: the fetch, its samples and its collate, in a worker or in the main process."""

import time
from typing import Any

from .. import events, in_place
from ..recorder import REC, now, quietly, report_fault
from ..scheduling import major_faults, process_io, thread_times

ITEM_COST_NS = 1_500  # cost of timing one sample; see benchmarks/overhead
CLOSELY_COST_NS = 30_000  # cost of reading the kernel's counters around a fetch, caches cold
CLOSELY_BUDGET = 0.003  # share of the fetches' own time that close measurement may cost
LONG_NS = 10_000_000  # from this duration on, every fetch gets its counters recorded, sampled closely or not


class _State:
    __slots__ = ("current_batch", "sample_cost_ns", "timing_samples")

    def __init__(self):
        self.timing_samples = False  # whether the samples of the batch that is being fetched are timed
        self.sample_cost_ns = ITEM_COST_NS  # grows with the parts that a sample is timed in
        self.current_batch = -1  # index of the batch that the worker loop is working on


STATE = _State()


class _TimedIndices:
    """The indices of one fetch. A sample is made between two of them, so the data set needs no wrapper."""

    def __init__(self, indices):
        self._indices = indices

    def __len__(self):
        return len(self._indices)

    def __iter__(self):
        for index in self._indices:
            start = now()
            yield index
            _sample_made(start, index)


class _Fetch:
    """A running fetch; its first item is passed to the fetch in place of the indices."""

    __slots__ = ("before", "closely", "collate_start", "fetcher", "indices", "samples", "start")

    def __init__(self, fetcher, indices):
        self.fetcher: Any = fetcher
        self.indices: Any = indices
        self.samples = len(indices) if type(indices) in (list, tuple) else 1
        self.closely = fetcher.__dict__.get("_flatout_left", 0) <= 0
        self.collate_start = self.start = 0
        self.before: Any = None

    def __getitem__(self, place):
        return self.indices


def install(fetch_module):
    """Time the two fetches of ``torch.utils.data._utils.fetch``."""
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        function = in_place.innermost(getattr(fetch_module, name).fetch)
        if not in_place.is_instrumented(function):
            in_place.instrument(function, _begins, _ended, "possibly_batched_index", _collates)


def _begins(fetcher, indices):
    """Time every fetch; within the budget, read its kernel counters and time its samples one by one."""
    if not REC.on:
        return None
    fetch = _Fetch(fetcher, indices)
    if fetch.closely:
        fetch.before = _counters()
        if _one_by_one(fetcher):
            fetch.indices = _TimedIndices(indices)
        STATE.timing_samples = True
    else:
        fetcher._flatout_left -= 1
        fetch.before = _times() if "_flatout_long" in fetcher.__dict__ else None
    fetch.start = now()
    return fetch


def _one_by_one(fetcher):
    """True if the fetch takes the samples of a batch one after the other."""
    try:
        return fetcher.auto_collation and not getattr(fetcher.dataset, "__getitems__", None)
    except Exception:
        return False


def _collates(fetch):
    """The samples are complete."""
    fetch.collate_start = now()


def _ended(fetch, result):
    end = now()
    try:
        if fetch.collate_start and result is not fetch:
            if fetch.closely and not fetch.fetcher.auto_collation:
                _sample_made(fetch.start, fetch.indices, fetch.collate_start)
            REC.emit(events.COLLATE, fetch.collate_start, end)
        if fetch.closely:
            STATE.timing_samples = False
            _fetched(fetch.fetcher, fetch.samples, fetch.start, end, fetch.before)
            return
        REC.emit(events.FETCH, fetch.start, end, 0, STATE.current_batch, fetch.samples)
        if end - fetch.start >= LONG_NS:
            _long_fetch(fetch.fetcher, fetch.start, end, fetch.before)
    except Exception:
        report_fault("fetch")


@quietly
def _sample_made(start, index, end=None):
    REC.emit(events.ITEM, start, end or now(), 0, index if type(index) is int else -1)


def _times():
    """The clocks of this thread and of the process: 3 us, for each fetch of a loader that has long ones."""
    try:
        return thread_times(), time.process_time_ns()
    except Exception:
        report_fault("counters")
        return None


def _long_fetch(fetcher, start, end, before):
    """Record the scheduler counters of every long fetch: sampled short fetches say nothing about it.

    The first long fetch only switches the clocks on: a loader without long fetches pays nothing.
    """
    fetcher._flatout_long = True
    if before is None:
        return
    times, cpu = before
    after = thread_times()
    if times and after:
        REC.emit(events.FETCH_SCHED, start, end, 0, after[0] - times[0], after[1] - times[1])
    REC.emit(events.FETCH_PROCESS, start, end, 0, time.process_time_ns() - cpu, 0)


def _counters():
    try:
        return thread_times(), time.process_time_ns(), process_io(), major_faults()
    except Exception:
        report_fault("counters")
        return None


@quietly
def _fetched(fetcher, samples, start, end, before):
    cost = CLOSELY_COST_NS + STATE.sample_cost_ns * samples
    fetcher._flatout_left = round(cost / (CLOSELY_BUDGET * max(end - start, 1))) - 1
    if before is None:
        return
    REC.emit(events.FETCH, start, end, 0, STATE.current_batch, samples)
    times, cpu, io, faults = before
    times_after, cpu_after, io_after, faults_after = _counters()
    if times and times_after:
        REC.emit(events.FETCH_SCHED, start, end, 0, times_after[0] - times[0], times_after[1] - times[1])
    if io and io_after:
        REC.emit(events.FETCH_IO, start, end, io_after[1] - io[1], io_after[0] - io[0], io_after[2] - io[2])
    REC.emit(events.FETCH_PROCESS, start, end, 0, cpu_after - cpu, faults_after - faults)
