"""Memory that freed tensors leave, kept for the next ones."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.page_faults import fault_parts
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause


@remedy(
    ("page_faults", "cpu_decode", "cpu_transform", "cpu_read", "no_workers", "too_few_workers", "compute_bound"),
    IDENTICAL,
    risk="low",
)
def keep_memory(context: Context, cause: Cause) -> Proposal | None:
    """Do not give freed memory back to the kernel."""
    parts = fault_parts(context)
    if parts is None:
        return None
    return Proposal(
        title="keep freed memory in the process",
        change=parts.change(context),
        least=parts.least(context),
        most=parts.most(context),
        how="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1 python train.py, of glibc; or jemalloc or tcmalloc with "
        "LD_PRELOAD",
        settings={"memory_kept": True},
        basis="measured page faults and time in the kernel; without them steps of three networks became shorter by 1.2 "
        "to 1.6 times that time",
        memory_bytes=None,
    )
