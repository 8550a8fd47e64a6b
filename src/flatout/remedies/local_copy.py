"""Read from a disk of this machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flatout.diagnose.causes.fetching import group_share, storage_share, without_reading
from flatout.diagnose.loading import Loading
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Case, Entry, Proposal

# What a local disk takes to open a file, and for each byte of it. The data sheets of NVMe disks say 0.1 ms and less,
# and 2 GB/s and more; a network disk of a cloud's machine answers in up to 1 ms and gives 100 MB/s and more.
SSD = (0.1e-3, 1 / 1e9)
SLOW_DISK = (1e-3, 1 / 1e8)
UNKNOWN_SHARE = 0.05  # of the wait that stays, where files and bytes were not counted


def _propose(case: Case) -> Proposal | None:
    loading = case.view.loading
    if loading is None:
        return None
    # What reads from memory at once needs no system calls that wait, and hardly any that compute.
    reading = group_share(loading.cpu_groups, ("network", "read"))
    return Proposal(
        title="copy the data set to a local disk",
        change=without_reading(loading, 1.0 - _stays(loading, SSD)),
        least=Change(fetch_blocked_factor=1.0 - (1.0 - _stays(loading, SLOW_DISK)) * storage_share(loading)),
        most=replace(without_reading(loading), fetch_cpu_factor=1.0 - reading),
        how=f"flatout stage {loading.data_folder or 'FOLDER'} LOCAL, on a local SSD, and point the data set there",
        recipe="data.root=LOCAL_COPY",
        basis=_basis(loading),
        memory_bytes=0,
    )


def _stays(loading: Loading, disk: tuple[float, float]) -> float:
    """Share of the wait for storage that a disk leaves, 0..1: its time for the files and bytes of a sample over it."""
    if not _is_counted(loading) or loading.fetch_blocked_s is None or not loading.samples:
        return UNKNOWN_SHARE if disk is SSD else 0.5
    waited_s = float(np.sum(loading.fetch_blocked_s)) / loading.samples * storage_share(loading)
    stays_s = max(loading.files_per_sample or 0.0, 1.0) * disk[0] + (loading.bytes_read_per_sample or 0.0) * disk[1]
    return min(stays_s / waited_s, 1.0) if waited_s > 0 else 1.0


def _is_counted(loading: Loading) -> bool:
    """Whether a sample's bytes are known: what a client of a store receives is not counted."""
    return bool(loading.bytes_read_per_sample) and loading.client is None


def _basis(loading: Loading) -> str:
    if not _is_counted(loading):
        return "measured blocked time in reads; assumes that a local disk leaves a twentieth of it"
    return (
        "measured blocked time in reads; assumes that the local disk takes 0.1 ms a file and gives 1 GB/s, "
        "at worst 1 ms and 0.1 GB/s"
    )


ENTRY = Entry(
    "local_copy", ("storage_latency", "storage_bandwidth", "small_files", "cold_cache"), IDENTICAL, "low", _propose
)
