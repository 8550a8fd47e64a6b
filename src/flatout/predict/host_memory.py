"""Host memory that worker processes and their queues hold."""

from __future__ import annotations

from flatout.measure.measured_run import MeasuredRun
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR


def added_bytes(run: MeasuredRun, num_workers: int, prefetch_factor: int | None) -> int | None:
    """Host memory added by other worker settings, in bytes; negative if memory is freed.

    W x worker growth + W x prefetch x batch bytes, after less before. None if a part that changes is unknown.
    """
    loader = run.loading
    if loader is None:
        return None
    added = 0
    more_workers = num_workers - loader.settings.num_workers
    if more_workers:
        if run.usage.worker_bytes is None:
            return None
        added += more_workers * run.usage.worker_bytes
    depth_now = loader.settings.num_workers * (loader.settings.prefetch_factor or DEFAULT_PREFETCH_FACTOR)
    depth = num_workers * (prefetch_factor or loader.settings.prefetch_factor or DEFAULT_PREFETCH_FACTOR)
    if depth != depth_now:
        if loader.delivery.batch_bytes is None:
            return None
        added += (depth - depth_now) * loader.delivery.batch_bytes
    return added
