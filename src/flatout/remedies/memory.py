"""Memory that every step takes anew from the kernel: kept from step to step, or taken in larger pages."""

from __future__ import annotations

from collections.abc import Mapping

from flatout.predict.context import Context
from flatout.predict.page_faults import fault_parts
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.results import Cause

_CAUSES = ("page_faults", "cpu_decode", "cpu_transform", "cpu_read", "no_workers", "too_few_workers", "compute_bound")
# Of the time that faults take, with what they push out of the caches. Tensors below 2 MiB have no huge pages.
_HUGE, _LEAST_HUGE, _MOST_HUGE = 0.8, 0.0, 1.3


@remedy(_CAUSES, IDENTICAL, risk="low")
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
        how="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1 before the command, which glibc reads; or LD_PRELOAD with "
        "tcmalloc (with jemalloc the steps of one training took longer than before)",
        settings={"memory_kept": True},
        basis="measured page faults and time in the kernel; without them the steps of nine trainings became shorter by "
        "0.9 to 1.3 times that time",
        memory_bytes=None,
    )


@remedy(_CAUSES, IDENTICAL, risk="low")
def huge_pages(context: Context, cause: Cause) -> Proposal | None:
    """Take large tensors from the kernel in pages of 2 MiB, where it gives them to a program that asks."""
    parts = fault_parts(context)
    memory = context.run.machine.get("memory")
    if parts is None or not isinstance(memory, Mapping) or memory.get("huge_pages") != "madvise":
        return None
    return Proposal(
        title="lay large tensors in huge pages",
        change=parts.change(context, _HUGE),
        least=parts.change(context, _LEAST_HUGE),
        most=parts.change(context, _MOST_HUGE),
        how="THP_MEM_ALLOC_ENABLE=1 before the command: a variable that PyTorch reads",
        settings={"huge_pages": True},
        basis="measured page faults and time in the kernel; tensors of 2 MiB or more then fault once for each 2 MiB",
        memory_bytes=0,
    )
