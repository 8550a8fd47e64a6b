"""Between the workers and the training: depth, order, size and locks."""

from __future__ import annotations

from flatout.measure.array_reads import largest_tensor
from flatout.measure.loader_stats import LoaderStats, mean_s
from flatout.predict.context import Context
from flatout.predict.fetch_changes import COPY_BYTES_PER_S, collate_share, fewer_bytes, group_share, like_the_others
from flatout.predict.host_memory import added_bytes
from flatout.predict.mean_costs import LOCK_GROUPS
from flatout.predict.pipeline import Change
from flatout.predict.whatif import Wanted, WhatIf
from flatout.predict.workers import enough_prefetch, most_workers
from flatout.probe.settings import DEFAULT_PREFETCH_FACTOR
from flatout.remedies.proposal import DATA, IDENTICAL, NUMERICS, Proposal, remedy
from flatout.remedies.workers import keeping_workers
from flatout.results import Cause
from flatout.units import percent

_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_DEPTHS = (2, 4, 8)
# Settings that come this close to the best cost memory for nothing measurable.
_NEARLY = 0.98


@remedy(("too_few_workers", "storage_latency", "shallow_prefetch", "sample_skew"), IDENTICAL, risk="low")
def prefetch_factor(context: Context, cause: Cause) -> Proposal | None:
    """Deepen the queue so that a slow batch does not stop the training."""
    loader = context.run.loading
    if loader is None or loader.settings.num_workers == 0:
        return None
    depth = enough_prefetch(context.run, context.model, loader.settings.num_workers)
    now = loader.settings.prefetch_factor or DEFAULT_PREFETCH_FACTOR
    if depth is None or depth <= now or context.whatif is None:
        return None
    gain = context.whatif.gain(Wanted(prefetch_factor=depth))
    return Proposal(
        title=f"raise prefetch_factor from {now} to {depth}",
        change=Change(throughput_factor=gain.predicted),
        gain=gain,
        how=f"DataLoader(..., prefetch_factor={depth})",
        settings={"prefetch_factor": depth},
        recipe=f"images.prefetch_batches={depth * max(loader.settings.num_workers, 1)}",
        basis="the recorded batches, simulated with both depths; a deeper queue cannot raise the mean supply",
        memory_bytes=added_bytes(context.run, loader.settings.num_workers, depth),
    )


@remedy(("too_few_workers", "storage_latency", "sample_skew", "shallow_prefetch", "small_files"), IDENTICAL, risk="low")
def queue_settings(context: Context, cause: Cause) -> Proposal | None:
    """Change the number of workers and the depth of their queue together, if neither alone gains as much."""
    loader, whatif = context.run.loading, context.whatif
    if loader is None or whatif is None:
        return None
    depth_now = loader.settings.prefetch_factor or DEFAULT_PREFETCH_FACTOR
    workers, depth = best_queue(whatif, most_workers(context.run), depth_now)
    if workers == loader.settings.num_workers or depth == depth_now:
        return None  # one of the two is enough, and has its own remedy
    gain = whatif.gain(Wanted(num_workers=workers, prefetch_factor=depth))
    keep = keeping_workers(loader)
    restarts = ", persistent_workers=True" if keep else ""
    return Proposal(
        title=f"set num_workers={workers} and prefetch_factor={depth}",
        change=Change(),
        gain=gain,
        how=f"DataLoader(..., num_workers={workers}, prefetch_factor={depth}{restarts})",
        settings={"num_workers": workers, "prefetch_factor": depth, **keep},
        basis="the recorded batches, simulated as the queue is and as it would be",
        memory_bytes=added_bytes(context.run, workers, depth),
    )


def best_queue(whatif: WhatIf, most: int, depth_now: int) -> tuple[int, int]:
    """(num_workers, prefetch_factor): fewest workers, then shallowest queue, that nearly give the best rate.

    Pairs whose upper bound is below the best rate so far are not simulated.
    """
    depths = sorted(depth for depth in {depth_now, *_DEPTHS} if depth >= depth_now)
    pairs = [(workers, depth) for workers in _WORKERS if workers <= most for depth in depths]
    wanted = {pair: Wanted(num_workers=pair[0], prefetch_factor=pair[1]) for pair in pairs}
    bounds = {pair: whatif.bound(wanted[pair]) for pair in pairs}
    rates: dict[tuple[int, int], float] = {}
    first = pairs[-1]
    best = whatif.rate(wanted[first])
    for pair in pairs:
        if bounds[pair] < _NEARLY * best:
            continue
        rates[pair] = whatif.rate(wanted[pair])
        best = max(best, rates[pair])
        first = next((found for found, rate in rates.items() if rate >= _NEARLY * best), pairs[-1])
        if rates.get(first, 0.0) >= _NEARLY * max(bounds.values()):
            break  # no other pair can replace it as the first
    return first


@remedy(("sample_skew",), DATA, risk="low")
def in_order(context: Context, cause: Cause) -> Proposal | None:
    """Deliver batches as they are made, not in their order."""
    loader = context.run.loading
    if loader is None or loader.settings.num_workers < 2 or not loader.settings.in_order or context.whatif is None:
        return None
    gain = context.whatif.gain(Wanted(in_order=False))
    return Proposal(
        title="let fast batches pass slow ones",
        change=Change(throughput_factor=gain.predicted),
        gain=gain,
        how="DataLoader(..., in_order=False)  # torch 2.6 or newer; or a deeper prefetch_factor",
        settings={"in_order": False},
        basis="the recorded batches, simulated in order and as they come; the order of the batches changes",
        memory_bytes=0,
    )


@remedy(("sample_skew",), DATA, risk="medium")
def shorter_samples(context: Context, cause: Cause) -> Proposal | None:
    """Make the few costly samples as cheap as the others, once and beforehand."""
    loader = context.run.loading
    slow = loader.fetch.slow if loader else None
    if loader is None or slow is None:
        return None
    return Proposal(
        title=f"cut or shrink the {percent(slow.samples)} of the samples that take most of the time, once",
        change=like_the_others(loader, slow),
        least=like_the_others(loader, slow, 0.5),
        how="store long recordings in pieces, large pictures resized; or cut before the costly transform",
        basis="the measured time of each sample; assumes that they then take as long as the median one",
        memory_bytes=0,
    )


# Type of a batch's values -> the type to hand over instead, its share of the bytes, and code for both sides.
_SMALLER = {
    "float64": ("float32", 0.5, "return sample.float() from the Dataset: most models compute in float32"),
    "int64": ("int32", 0.5, "return ids.int() from the Dataset; ids = ids.to(device).long() in the loop"),
    "float32": ("float16", 0.5, "return sample.half() from the Dataset; batch = batch.to(device).float() in the loop"),
}
_PICTURES = (
    "uint8", 0.25,
    "return torch.from_numpy(image_uint8) from the Dataset; images.to(device).float().div_(255) in the loop",
)  # fmt: skip
_PICTURE_SIDES = 4  # of a batch: samples, channels, rows and columns


@remedy(("large_batches",), NUMERICS, risk="low")
def smaller_samples(context: Context, cause: Cause) -> Proposal | None:
    """Hand over fewer bytes: the data type of the files."""
    loader = context.run.loading
    if loader is None or loader.settings.num_workers == 0:
        return None
    dtype, shape = largest_tensor(loader.delivery) or ("float32", (0,) * _PICTURE_SIDES)
    pictures = dtype == "float32" and len(shape) == _PICTURE_SIDES
    smaller = _PICTURES if pictures else _SMALLER.get(dtype)
    if smaller is None:  # they are small already
        return None
    name, part, how = smaller
    assumed = "were 8 bits" if pictures else f"need no more than {name}"
    return Proposal(
        title=f"hand over small types ({name}), convert on the device",
        change=fewer_bytes(context.run, context.model, part),
        least=Change(),
        most=fewer_bytes(context.run, context.model, 0.0),
        how=how,
        basis=f"measured time of copying and freeing batches; assumes that their {dtype} values {assumed}",
        memory_bytes=0,
    )


# One copy of a sample takes this much less than a loop over its values, at least; and at most.
_NEEDLESS_COLLATING, _MOST_NEEDLESS = 0.85, 0.97
# What putting a batch together takes: copying its bytes, and this for each sample, assumed; twice that is left.
_SAMPLE_S, _LEFT = 2e-5, 2.0


@remedy(("slow_collate",), IDENTICAL, risk="low")
def faster_collate(context: Context, cause: Cause) -> Proposal | None:
    """Put batches together with one copy."""
    loader = context.run.loading
    if loader is None or loader.settings.collates:  # torch's own copies each once
        return None
    part = collate_share(loader)
    return Proposal(
        title="make collate_fn copy each sample once",
        change=Change(fetch_cpu_factor=1.0 - _needless_collating(loader) * part),
        least=Change(fetch_cpu_factor=1.0 - 0.2 * part),
        most=Change(fetch_cpu_factor=1.0 - part),
        how="collate_fn: torch.stack(samples) of tensors of one shape; pad or tokenize in Dataset.__getitem__",
        basis="measured time of collating, less twice what copying these bytes takes; what else it does is not known",
        memory_bytes=0,
    )


def _needless_collating(loader: LoaderStats) -> float:
    """Part of the time of collating that one copy of each sample would not take."""
    delivery, collate_s = loader.delivery, mean_s(loader.fetch.collate_s)
    if not delivery.batches or collate_s <= 0:
        return _NEEDLESS_COLLATING
    needed_s = (delivery.batch_bytes or 0) / COPY_BYTES_PER_S + delivery.samples / delivery.batches * _SAMPLE_S
    return min(max(1.0 - _LEFT * needed_s / collate_s, _NEEDLESS_COLLATING), _MOST_NEEDLESS)


@remedy(("lock_contention",), IDENTICAL, risk="medium")
def own_handles(context: Context, cause: Cause) -> Proposal | None:
    """Give each worker its own handle of what it shares under a lock."""
    loader = context.run.loading
    if loader is None or loader.settings.num_workers < 2:
        return None
    lock = group_share(loader.functions.blocked_groups, LOCK_GROUPS)
    return Proposal(
        title="open files and connections in each worker, without a shared lock",
        change=Change(lock_removed=True, fetch_blocked_factor=1.0 - lock),
        least=Change(),
        how="open in worker_init_fn, or at the first __getitem__ of a worker: self.file = None in __init__",
        basis="measured waiting for a lock; what the lock protects may be slow by itself",
        memory_bytes=None,
    )
