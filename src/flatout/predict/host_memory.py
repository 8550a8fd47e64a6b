"""Host memory that worker processes and their queues hold."""

from __future__ import annotations

from flatout.measure.measured_run import MeasuredRun
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR


def added_bytes(view: MeasuredRun, num_workers: int, prefetch_factor: int | None) -> int | None:
    """Host memory added by other worker settings, in bytes; negative when memory is given back.

    W x worker growth + W x prefetch x batch bytes, after less before. None when a part that changes is not known.
    """
    loading = view.loading
    if loading is None:
        return None
    added = 0
    more_workers = num_workers - loading.num_workers
    if more_workers:
        if view.usage.worker_bytes is None:
            return None
        added += more_workers * view.usage.worker_bytes
    depth_now = loading.num_workers * (loading.prefetch_factor or DEFAULT_PREFETCH_FACTOR)
    depth = num_workers * (prefetch_factor or loading.prefetch_factor or DEFAULT_PREFETCH_FACTOR)
    if depth != depth_now:
        if loading.batch_bytes is None:
            return None
        added += (depth - depth_now) * loading.batch_bytes
    return added
