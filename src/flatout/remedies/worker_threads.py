"""One computing thread in each worker."""

from __future__ import annotations

import math

from flatout.predict.fetch_changes import computing_threads, storage_share
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    loading, now = case.view.loading, case.model.now
    if loading is None or now.fetch_cpu_s <= 0:
        return None
    threads = computing_threads(case.view, loading)
    if threads <= 1.0:
        return None
    # What the other threads did is partly work that the one thread has to do, partly spinning at barriers:
    # between none and all of it is left, and the middle (of the logarithms) is predicted.
    storage = storage_share(loading)
    left = max(now.worker_cpu_s / now.fetch_cpu_s, 1.0)
    middle = Change(worker_threads_removed=True, fetch_cpu_factor=math.sqrt(left), fetch_blocked_factor=storage)
    most = Change(worker_threads_removed=True, fetch_blocked_factor=storage)
    return Proposal(
        title=f"compute with 1 thread in each worker instead of {threads:.0f}",
        change=middle,
        least=Change(),
        most=most,
        how="in worker_init_fn: torch.set_num_threads(1); with OpenCV also cv2.setNumThreads(0)",
        settings={"worker_threads": 1},
        basis="CPU time of the workers' other threads: how much of it is real work is not known",
        memory_bytes=0,
    )


ENTRY = RemedySpec("worker_threads", ("too_many_workers",), IDENTICAL, "low", _propose)
