"""Read from a disk of this machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flatout.measure.loader_stats import LoaderStats, Seconds
from flatout.predict.fetch_changes import collate_share, group_share, storage_share, without_groups, without_reading
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Context, Proposal, RemedySpec

# What a local disk takes to open a file, and for each byte of it. The data sheets of NVMe disks say 0.1 ms and less,
# and 2 GB/s and more; a network disk of a cloud's machine answers in up to 1 ms and gives 100 MB/s and more.
SSD = (0.1e-3, 1 / 1e9)
SLOW_DISK = (1e-3, 1 / 1e8)
# What a core takes to open and read a file. From the page cache 11 us were measured for 19 KB and 21 us for 110 KB (one
# machine); what comes from the disk takes more, so this is some times that.
CORE = (50e-6, 1 / 4e9)
UNKNOWN_SHARE = 0.05  # of the wait that stays, where files and bytes were not counted


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None:
        return None
    return Proposal(
        title="copy the data set to a local disk",
        change=_reading_locally(loading, 1.0 - _waits(loading, SSD), 1.0 - _computes(loading)),
        least=Change(fetch_blocked_factor=1.0 - (1.0 - _waits(loading, SLOW_DISK)) * storage_share(loading)),
        most=_reading_locally(loading, 1.0, 1.0),
        how=f"flatout stage {loading.data_folder or 'FOLDER'} LOCAL, on a local SSD, and point the data set there",
        recipe="data.root=LOCAL_COPY",
        basis=_basis(loading),
        memory_bytes=0,
    )


def _reading_locally(loading: LoaderStats, waiting: float, computing: float) -> Change:
    """The change of taking these parts off the wait for storage, and off what reading takes of a core."""
    change = without_reading(loading, waiting)
    reading = without_groups(loading, ("read",), computing)
    return replace(change, fetch_cpu_factor=max(change.fetch_cpu_factor + reading.fetch_cpu_factor - 1.0, 0.0))


def _waits(loading: LoaderStats, disk: tuple[float, float]) -> float:
    """Share of the wait for storage that a disk leaves, 0..1: its time for the files and bytes of a sample over it."""
    if not _is_counted(loading) or loading.fetch_blocked_s is None:
        return UNKNOWN_SHARE if disk is SSD else 0.5
    return _share_of(loading, disk, loading.fetch_blocked_s, storage_share(loading))


def _computes(loading: LoaderStats) -> float:
    """Share of what reading takes of a core that stays, 0..1."""
    if not _is_counted(loading) or loading.fetch_cpu_s is None:
        return 1.0
    share = group_share(loading.cpu_groups, ("read",)) * (1.0 - collate_share(loading))
    return _share_of(loading, CORE, loading.fetch_cpu_s, share)


def _share_of(loading: LoaderStats, costs: tuple[float, float], seconds: Seconds, share: float) -> float:
    """What a sample's files and bytes cost, over a share of these seconds of all batches; at most 1."""
    now_s = float(np.sum(seconds)) * share
    files, size = max(loading.files_per_sample or 0.0, 1.0), loading.bytes_read_per_sample or 0.0
    then_s = loading.samples * (files * costs[0] + size * costs[1])
    return min(then_s / now_s, 1.0) if now_s > 0 else 1.0


def _is_counted(loading: LoaderStats) -> bool:
    """Whether a sample's bytes are known: what a client of a store receives is not counted."""
    return bool(loading.bytes_read_per_sample) and bool(loading.samples) and loading.client is None


def _basis(loading: LoaderStats) -> str:
    if not _is_counted(loading):
        return "measured blocked time in reads; assumes that a local disk leaves a twentieth of it"
    return (
        "measured blocked time in reads; assumes that the local disk takes 0.1 ms a file and gives 1 GB/s, "
        "at worst 1 ms and 0.1 GB/s, and a core 0.05 ms a file"
    )


ENTRY = RemedySpec(
    "local_copy",
    ("storage_latency", "storage_bandwidth", "small_files", "cold_cache"),
    IDENTICAL,
    "low",
    _propose,
    mechanics="local_copy",
)
