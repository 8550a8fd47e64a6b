"""All causes, in one flat list. A cause is a pure function of a View; its name is the id, fixed for good."""

from __future__ import annotations

from collections.abc import Callable

from flatout.diagnose.causes.device import compute_bound, device_sync, small_batch
from flatout.diagnose.causes.host import checkpoint, epoch_start, logging, main_process_work, own_input, validation
from flatout.diagnose.causes.machine import cpu_training, h2d, throttled
from flatout.diagnose.causes.preparation import cpu_decode, cpu_transform
from flatout.diagnose.causes.queue import fat_samples, sample_skew, serialized_workers, shallow_prefetch, slow_collate
from flatout.diagnose.causes.ranks import rank_straggler
from flatout.diagnose.causes.reading import cold_cache, read_amplification, small_files, storage_bandwidth
from flatout.diagnose.causes.storage import storage_latency
from flatout.diagnose.causes.workers import no_workers, too_few_workers, too_many_workers, worker_restart
from flatout.measure.measured_run import MeasuredRun
from flatout.results import Cause, NotMeasured

CauseFunction = Callable[[MeasuredRun], Cause | NotMeasured | None]

CAUSES: tuple[CauseFunction, ...] = (
    no_workers,
    too_few_workers,
    too_many_workers,
    cpu_decode,
    cpu_transform,
    storage_latency,
    storage_bandwidth,
    small_files,
    cold_cache,
    read_amplification,
    serialized_workers,
    sample_skew,
    fat_samples,
    slow_collate,
    shallow_prefetch,
    worker_restart,
    epoch_start,
    own_input,
    main_process_work,
    logging,
    checkpoint,
    validation,
    small_batch,
    device_sync,
    h2d,
    throttled,
    rank_straggler,
    cpu_training,
    compute_bound,
)

__all__ = ["CAUSES", "CauseFunction"]
