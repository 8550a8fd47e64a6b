"""Share the fixed cost of a step among more samples."""

from __future__ import annotations

from flatout.predict.device_memory import DeviceMemory, device_memory
from flatout.predict.pipeline import Change
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR
from flatout.remedies.proposal import OPTIMISATION, Context, Proposal, RemedySpec

_FACTORS = (2.0, 1.5, 1.25)


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.batch_size is None:
        return None
    size = loading.batch_size
    memory = device_memory(case.view)
    # Sizes that fit: without a GPU, or without its memory known, the double is taken.
    bigger = next((int(size * factor) for factor in _FACTORS if _fits(memory, int(size * factor), size)), None)
    if bigger is None:
        return None
    # Demand b / (a b + c): a larger batch shares the fixed cost c among more samples.
    saved_s = (1.0 - size / bigger) * case.cause.share * case.model.now.total_s
    depth_bytes = None
    if loading.num_workers == 0:
        depth_bytes = round((bigger / size - 1.0) * loading.batch_bytes) if loading.batch_bytes is not None else None
    elif loading.batch_bytes is not None:
        # Each batch in flight grows.
        depth = loading.num_workers * (loading.prefetch_factor or DEFAULT_PREFETCH_FACTOR)
        depth_bytes = round((bigger / size - 1.0) * depth * loading.batch_bytes)
    return Proposal(
        title=f"raise the batch size from {size} to {bigger}",
        change=Change(busy_removed_s=saved_s, busy_cpu_removed_s=saved_s),
        least=Change(),
        how=f"DataLoader(..., batch_size={bigger}); adapt the learning rate; device memory grows with the batch",
        settings={"batch_size": bigger, "lr_factor": bigger / size},
        recipe=f"training.batch_size={bigger}",
        basis=f"measured cost that each step has once; {_told(memory, bigger)}",
        memory_bytes=depth_bytes,
    )


def _fits(memory: DeviceMemory | None, bigger: int, size: int) -> bool:
    return bigger > size and (memory is None or memory.fits(bigger))


def _told(memory: DeviceMemory | None, size: int) -> str:
    if memory is None:
        return "device memory was not predicted"
    low, high = memory.at(size)
    gib = 1 << 30
    return f"device memory {low / gib:.1f} to {high / gib:.1f} of {memory.total_bytes / gib:.1f} GiB, predicted"


ENTRY = RemedySpec("bigger_batch", ("small_batch",), OPTIMISATION, "medium", _propose)
