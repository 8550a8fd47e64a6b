"""Remedies for reads: their amount and their source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flatout.measure.loader_stats import LoaderStats, Seconds
from flatout.predict.context import Context
from flatout.predict.fetch_changes import (
    DECODE_GROUPS,
    TABLE_PACKAGES,
    TEXT_PACKAGES,
    UNPACKING_GROUPS,
    collate_share,
    group_share,
    read_bytes,
    reading_less,
    sample_bytes,
    storage_share,
    without_groups,
    without_reading,
)
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import IDENTICAL, Proposal, remedy
from flatout.remedies.volumes import cut_from_volumes
from flatout.results import Cause
from flatout.units import size

# Seconds that a local disk takes to open a file, and per byte of it. The data sheets of NVMe disks say 0.1 ms and
# less, and 2 GB/s and more; a cloud machine's network disk answers in up to 1 ms and gives 100 MB/s and more.
SSD = (0.1e-3, 1 / 1e9)
SLOW_DISK = (1e-3, 1 / 1e8)
# Seconds that a core takes to open a file, and per byte of it. From the page cache, 11 us were measured for 19 KB and
# 21 us for 110 KB (one machine); reads from the disk take longer, so this is several times that.
CORE = (50e-6, 1 / 4e9)
UNKNOWN_SHARE = 0.05  # of the wait that stays, where files and bytes were not counted
# The page cache does as much for a file system that uses it: half of the free memory stays with it.
_SHARE = 0.5


@remedy(
    ("storage_latency", "storage_bandwidth", "small_files", "cold_cache"), IDENTICAL, risk="low", mechanics="local_copy"
)
def local_copy(context: Context, cause: Cause) -> Proposal | None:
    """Read from a disk of this machine."""
    loader = context.run.loading
    if loader is None:
        return None
    folder = loader.storage.data_folder or "FOLDER"
    return Proposal(
        title="copy the data set to a local disk",
        change=_reading_locally(loader, 1.0 - _waits(loader, SSD), 1.0 - _computes(loader)),
        least=Change(fetch_blocked_factor=1.0 - (1.0 - _waits(loader, SLOW_DISK)) * storage_share(loader)),
        most=_reading_locally(loader, 1.0, 1.0),
        how=f"flatout stage {folder} LOCAL, on a local SSD, and point the data set there",
        recipe="data.root=LOCAL_COPY",
        basis=_basis(loader),
        memory_bytes=0,
    )


def _reading_locally(loader: LoaderStats, waiting: float, computing: float) -> Change:
    """The change that removes these parts of the wait for storage and of the CPU time of reading."""
    change = without_reading(loader, waiting)
    reading = without_groups(loader, ("read",), computing)
    return replace(change, fetch_cpu_factor=max(change.fetch_cpu_factor + reading.fetch_cpu_factor - 1.0, 0.0))


def _waits(loader: LoaderStats, disk: tuple[float, float]) -> float:
    """Share of the wait for storage that a disk leaves, 0..1: its time for the samples' files and bytes / the wait."""
    if not _is_counted(loader) or loader.fetch.blocked_s is None:
        return UNKNOWN_SHARE if disk is SSD else 0.5
    return _share_of(loader, disk, loader.fetch.blocked_s, storage_share(loader))


def _computes(loader: LoaderStats) -> float:
    """Share of the CPU time of reading that is left, 0..1."""
    if not _is_counted(loader) or loader.fetch.cpu_s is None:
        return 1.0
    share = group_share(loader.functions.cpu_groups, ("read",)) * (1.0 - collate_share(loader))
    return _share_of(loader, CORE, loader.fetch.cpu_s, share)


def _share_of(loader: LoaderStats, costs: tuple[float, float], seconds: Seconds, share: float) -> float:
    """Cost of all samples' files and bytes / (share x seconds of all batches), at most 1."""
    now_s = float(np.sum(seconds)) * share
    files, size = max(loader.storage.files_per_sample or 0.0, 1.0), loader.storage.bytes_read_per_sample or 0.0
    then_s = loader.delivery.samples * (files * costs[0] + size * costs[1])
    return min(then_s / now_s, 1.0) if now_s > 0 else 1.0


def _is_counted(loader: LoaderStats) -> bool:
    """True if a sample's bytes are known: bytes that an object-store client receives are not counted."""
    return (
        bool(loader.storage.bytes_read_per_sample) and bool(loader.delivery.samples) and loader.storage.client is None
    )


def _basis(loader: LoaderStats) -> str:
    if not _is_counted(loader):
        return "measured blocked time in reads; assumes that a local disk leaves a twentieth of it"
    return (
        "measured blocked time in reads; assumes that the local disk takes 0.1 ms a file and gives 1 GB/s, "
        "at worst 1 ms and 0.1 GB/s, and a core 0.05 ms a file"
    )


@remedy(("storage_latency", "storage_bandwidth", "small_files"), IDENTICAL, risk="medium")
def cache_files(context: Context, cause: Cause) -> Proposal | None:
    """Keep the bytes of pictures in the workers' memory, where passes repeat and storage is slow."""
    loader, usage = context.run.loading, context.run.usage
    if loader is None or not loader.storage.bytes_read_per_sample or usage.available_bytes is None:
        return None
    if loader.delivery.epochs_started < 1:
        return None  # nothing was read twice in the window
    if not any(loader.functions.cpu_groups.get(group) for group in DECODE_GROUPS):
        return None  # only files that Pillow opens are kept
    processes = max(loader.settings.num_workers, 1)
    budget = int(_SHARE * usage.available_bytes / processes)
    passes = (
        loader.delivery.batches
        * loader.storage.bytes_read_per_sample
        * (loader.settings.batch_size or 1)
        / (loader.delivery.epochs_started + 1)
    )
    held = min(budget * processes / passes, 1.0) if passes > 0 else 0.0
    # A worker holds only files that it read itself: in the second pass, one in ``num_workers`` of those it needs.
    return Proposal(
        title=f"keep up to {size(budget)} of picture files in each process",
        change=without_reading(loader, held / processes),
        least=Change(),
        most=without_reading(loader, held),
        how="a dict from path to bytes in the data set, with persistent_workers=True",
        settings={"file_cache_bytes": budget, **({"persistent_workers": True} if loader.settings.num_workers else {})},
        basis="measured time of reads; files that another worker read before are read again",
        memory_bytes=round(min(passes, budget * processes)),
    )


# Readers of whole arrays that ``probe.injections.mapped`` answers with a map, if the file holds them as they are.
_MAPPED = ("numpy", "tifffile", "h5py")
_UNPACKED = 0.9  # of the arrays' bytes: fewer are read where they are packed


def _needless(context: Context, loader: LoaderStats) -> float | None:
    """Part of the bytes read that no sample keeps, 0..1."""
    used, read = sample_bytes(loader), read_bytes(context.run)
    return max(0.0, 1.0 - used / read) if used and read else None


def _left_out(needless: float) -> float:
    """Part of the needless bytes that are read no more: a chunk holds about twice what the sample takes."""
    return max(1.0 - 2.0 * (1.0 - needless), 0.0) / needless if needless > 0 else 0.0


@remedy(("read_amplification",), IDENTICAL, risk="low")
def mapped_arrays(context: Context, cause: Cause) -> Proposal | None:
    """Map arrays that are read whole, so that only the pages that a sample uses are read."""
    loader = context.run.loading
    arrays = loader.storage.arrays if loader is not None else None
    if loader is None or arrays is None or arrays.package not in _MAPPED:
        return None
    needless, read = _needless(context, loader), loader.storage.bytes_read_per_sample or 0.0
    if needless is None or read < _UNPACKED * arrays.bytes:
        return None  # the files hold them packed
    return Proposal(
        title="map the arrays that samples read whole",
        change=reading_less(loader, _left_out(needless) * needless),
        least=Change(),
        most=reading_less(loader, needless),
        how="numpy.load(path, mmap_mode='c'), tifffile.memmap(path, mode='c'), torch.load(path, mmap=True)",
        settings={"mapped_arrays": True},
        basis="measured bytes read against bytes used; compressed arrays cannot be mapped, and gain nothing",
        memory_bytes=0,
    )


@remedy(("read_amplification", "cpu_read", "cpu_decode"), IDENTICAL, risk="medium")
def chunk_cache(context: Context, cause: Cause) -> Proposal | None:
    """Keep the unpacked chunks of HDF5 files, of which each sample takes a part."""
    loader, available = context.run.loading, context.run.usage.available_bytes
    if (
        loader is None
        or available is None
        or "h5py" not in {loader.functions.packages.get(g) for g in UNPACKING_GROUPS}
    ):
        return None
    room = int(_SHARE * available / max(loader.settings.num_workers, 1))
    return Proposal(
        title=f"keep unpacked chunks of HDF5 files: up to {size(room)} in each process that reads",
        change=without_groups(loader, UNPACKING_GROUPS, 0.8),
        least=Change(),
        most=without_groups(loader, UNPACKING_GROUPS, 0.95),
        how="h5py.File(path, rdcc_nbytes=BYTES, rdcc_nslots=100_003): as many bytes as the unpacked data set has, or "
        "as there is room for; or chunks of about a sample's shape",
        settings={"chunk_cache_bytes": room},
        basis="measured share of reading and unpacking, from the second read of a chunk on; nothing is gained where "
        "chunks are read once, or where too few of them fit",
        memory_bytes=None,
    )


_STORED_TABLE = (
    "its columns as .npy files that are mapped: numpy.load(path, mmap_mode='r')[n]; or Parquet with small row groups "
    "(row_group_size=...) and ParquetFile(path).read_row_group(n)"
)
_STORED_TEXT = (
    "numbers as .npy files that are mapped: numpy.load(path, mmap_mode='r')[n]; other records a line each, with a list "
    "of where each line begins: file.seek(begins[n])"
)
_STORED_ARRAYS = "numpy.memmap / np.load(path, mmap_mode='r')[slices], or zarr with chunks of about a sample's shape"
_STORED = {**dict.fromkeys(TABLE_PACKAGES, _STORED_TABLE), **dict.fromkeys(TEXT_PACKAGES, _STORED_TEXT)}


@remedy(("read_amplification",), IDENTICAL, risk="medium")
def chunked_reading(context: Context, cause: Cause) -> Proposal | None:
    """Read only what a sample keeps."""
    loader = context.run.loading
    if loader is None or cut_from_volumes(loader) or loader.functions.mostly_searches:
        return None
    needless = _needless(context, loader)
    if needless is None:
        return None

    def without(part: float) -> Change:
        return reading_less(loader, part * needless)

    return Proposal(
        title="store the data so that a sample can be read alone",
        change=without(_left_out(needless)),
        least=without(0.5 * _left_out(needless)),
        most=without(1.0),
        how=_STORED.get(loader.functions.packages.get("decode") or "", _STORED_ARRAYS),
        basis="measured bytes read against bytes used; a chunk is taken to hold twice what its sample takes",
        memory_bytes=0,
    )
