"""All causes, in one flat list. A cause is a pure function of a View; its name is the id, fixed for good."""

from __future__ import annotations

from collections.abc import Callable

from flatout.diagnose.causes.device import compute_bound, device_sync, small_batch
from flatout.diagnose.causes.host import checkpoint, logging, main_process_work, validation
from flatout.diagnose.causes.preparation import cpu_decode, cpu_transform
from flatout.diagnose.causes.storage import storage_latency
from flatout.diagnose.causes.workers import no_workers, too_few_workers, too_many_workers, worker_restart
from flatout.diagnose.result import Cause, NotMeasured
from flatout.diagnose.view import View

CauseFunction = Callable[[View], Cause | NotMeasured | None]

CAUSES: tuple[CauseFunction, ...] = (
    no_workers,
    too_few_workers,
    too_many_workers,
    cpu_decode,
    cpu_transform,
    storage_latency,
    worker_restart,
    main_process_work,
    logging,
    checkpoint,
    validation,
    small_batch,
    device_sync,
    compute_bound,
)

__all__ = ["CAUSES", "CauseFunction"]
