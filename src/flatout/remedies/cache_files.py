"""Keep the bytes of pictures in the workers' memory, where passes repeat and storage is slow."""

from __future__ import annotations

from flatout import units
from flatout.predict.fetch_changes import DECODE_GROUPS, without_reading
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec

# The page cache does as much for a file system that uses it: half of the free memory stays with it.
_SHARE = 0.5


def _propose(case: Context) -> Proposal | None:
    loading, usage = case.view.loading, case.view.usage
    if loading is None or not loading.bytes_read_per_sample or usage.available_bytes is None:
        return None
    if loading.epochs_started < 1:
        return None  # nothing was read twice in the window
    if not any(loading.cpu_groups.get(group) for group in DECODE_GROUPS):
        return None  # only files that Pillow opens are kept
    processes = max(loading.num_workers, 1)
    budget = int(_SHARE * usage.available_bytes / processes)
    passes = loading.batches * loading.bytes_read_per_sample * (loading.batch_size or 1) / (loading.epochs_started + 1)
    held = min(budget * processes / passes, 1.0) if passes > 0 else 0.0
    # A worker has what it read itself: in the second pass, one file in as many as there are workers.
    return Proposal(
        title=f"keep up to {units.size(budget)} of picture files in each process",
        change=without_reading(loading, held / processes),
        least=Change(),
        most=without_reading(loading, held),
        how="a dict from path to bytes in the data set, with persistent_workers=True",
        settings={"file_cache_bytes": budget, **({"persistent_workers": True} if loading.num_workers else {})},
        basis="measured time of reads; files that another worker read before are read again",
        memory_bytes=round(min(passes, budget * processes)),
    )


ENTRY = RemedySpec(
    "cache_files", ("storage_latency", "storage_bandwidth", "small_files"), IDENTICAL, "medium", _propose
)
