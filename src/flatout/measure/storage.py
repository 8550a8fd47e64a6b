"""The reads of the loader's processes: bytes, mounts, remote hosts, and whether a pass was cold."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from flatout.measure.worker_records import Fetches
from flatout.record import ProcessRecord, Run

COLD_SHARE = 0.5  # of the bytes read: storage delivered at least this much
WARM_SHARE = 0.05  # and at most this much where memory delivered the pass
# Pages of programs that the first fetches of a process load: a pass with fewer bytes from storage may have read no
# sample from there.
PROGRAM_BYTES = 8 << 20
# No samples lie there: libraries, their sources, flatout's own files, what the kernel shows as files.
_PROGRAM = re.compile(
    r"/(site|dist)-packages\b|/lib(64)?/python\d|/__pycache__\b|/flatout/probe\b|/\.flatout\b|"
    r"^/(proc|sys|dev|etc)\b|^/usr/(lib|share|bin)\b"
)
_NEARLY_ALL = 0.99
PAGE_BYTES = 4096  # the least that a major fault reads
# Kinds of file systems that are known to be a block device or memory: the kernel counts what these read.
COUNTED_KINDS = ("nvme", "ssd", "hdd", "network disk", "local", "ram", "overlay")


def bytes_per_sample(fetches: Sequence[Fetches]) -> tuple[float | None, float | None]:
    """Bytes read and bytes that storage delivered, a sample; None: not measured.

    Without the kernel's I/O counters the storage bytes are a lower bound: a page for each major fault.
    """
    samples = sum(float(table.samples.sum()) for table in fetches)
    if not samples:
        return None, None
    read = _total([table.read_bytes for table in fetches])
    storage = _total([table.storage_bytes for table in fetches])
    if storage is None:
        faults = _total([table.major_faults for table in fetches])
        storage = faults * PAGE_BYTES if faults else None
    return (None if read is None else read / samples), (None if storage is None else storage / samples)


def is_cold(read: float | None, storage: float | None, counted: bool) -> bool | None:
    """True if bytes came from storage rather than from memory; None: not measured, or some of each.

    Args:
        read: bytes that a pass read.
        storage: of them, bytes that storage delivered; what programs load on their first use counts too.
        counted: the kernel's counters see this storage: they do not see FUSE file systems.
    """
    if storage is None or read is None:
        return None
    if storage > COLD_SHARE * read and storage > PROGRAM_BYTES:
        return True
    return False if storage <= WARM_SHARE * read and counted else None


def mount_shares(run: Run, processes: Iterable[ProcessRecord]) -> dict[str, float]:
    """Share of the files that these processes opened, or were seen to hold open, by "mount point (kind)"."""
    opened: Counter[str] = Counter()
    for process in processes:
        # Files that are held open all the time (memory-mapped volumes) show only in samples of the open files.
        for field in ("dirs", "sampled"):
            counts = process.names.files.get(field)
            for folder, count in counts.items() if isinstance(counts, dict) else ():
                if folder.startswith("/") and isinstance(count, int):
                    opened[_mount_of(run, folder)] += count
    total = sum(opened.values())
    return {mount: count / total for mount, count in opened.most_common()} if total else {}


def data_folder(run: Run, processes: Iterable[ProcessRecord]) -> str | None:
    """The deepest folder that all but one in a hundred of the files lie below, on the mount most of them are on.

    Files of programs do not count. None: no file was seen.
    """
    opened: dict[str, Counter[str]] = {}
    for process in processes:
        here = str(process.info.get("cwd") or "/")
        library = _library(process)
        for field in ("dirs", "sampled"):
            counts = process.names.files.get(field)
            for named, count in counts.items() if isinstance(counts, dict) else ():
                folder = os.path.normpath(os.path.join(here, named))
                if isinstance(count, int) and not _PROGRAM.search(folder) and not folder.startswith(library):
                    opened.setdefault(_mount_of(run, folder), Counter())[folder] += count
    if not opened:
        return None
    mount = max(opened, key=lambda name: opened[name].total())
    counts, found = opened[mount], mount.rpartition(" (")[0]
    while True:
        below: Counter[str] = Counter()
        start = os.path.join(found, "")
        for folder, count in counts.items():
            if folder.startswith(start):
                below[start + folder.removeprefix(start).split("/")[0]] += count
        deeper, count = max(below.items(), key=lambda item: item[1], default=("", 0))
        if count < _NEARLY_ALL * counts.total():
            return found
        found = deeper


def _library(process: ProcessRecord) -> str:
    """The folder that the interpreter lies in: ``/opt/python`` of ``/opt/python/bin/python3``, with a slash behind."""
    executable = str(process.info.get("executable") or "")
    prefix = os.path.dirname(os.path.dirname(executable)) if os.path.isabs(executable) else ""
    return os.path.join(prefix, "lib", "") if prefix else "//"


def extensions(processes: Iterable[ProcessRecord]) -> dict[str, int]:
    """Files that these processes opened, by extension in lower case; files of programs are among them."""
    found: Counter[str] = Counter()
    for process in processes:
        counts = process.names.files.get("extensions")
        for name, count in counts.items() if isinstance(counts, dict) else ():
            if isinstance(count, int):
                found[name.lower()] += count
    return dict(found)


def storage_is_counted(mounts: dict[str, float]) -> bool:
    """True if the kernel's counters see reads from all these mounts; they are assumed not to see an unknown kind."""
    return all(mount.rpartition(" (")[2].rstrip(")") in COUNTED_KINDS for mount in mounts)


def peers_of(processes: Iterable[ProcessRecord]) -> tuple[str, ...]:
    """Remote hosts ("host:port") that these processes were connected to, most often seen first."""
    seen: Counter[str] = Counter()
    for process in processes:
        peers = process.names.files.get("peers")
        if isinstance(peers, dict):
            seen.update({str(peer): count for peer, count in peers.items() if isinstance(count, int)})
    return tuple(peer for peer, _ in seen.most_common())


def _mount_of(run: Run, folder: str) -> str:
    """The mount with the longest point above a folder."""
    mounts = run.machine.get("mounts")
    best: dict[str, Any] = {"point": "/", "kind": "unknown"}
    for mount in mounts if isinstance(mounts, list) else ():
        point = str(mount.get("point", ""))
        above = point == "/" or folder == point or folder.startswith(point + "/")
        if above and len(point) >= len(best["point"]):
            best = mount
    return f"{best['point']} ({best.get('kind') or 'unknown'})"


def _total(counters: Sequence[np.ndarray[Any, np.dtype[np.float64]]]) -> float | None:
    """Sum of the measured values; None if any of them was not measured."""
    joined = np.concatenate(counters) if counters else np.zeros(0)
    return float(joined.sum()) if len(joined) and not np.isnan(joined).any() else None


def opens_per_file(processes: Iterable[ProcessRecord]) -> tuple[float | None, int]:
    """Times that a process has opened each of its files, over the whole record, and the number of files.

    The number is the sum of the processes': an upper bound. The times are None where nothing was counted.
    """
    opened = again = 0
    for process in processes:
        known = process.names.files.get("again")
        for folder, count in _samples_files(process):
            opened += count if isinstance(known, dict) else 0
            again += min(known.get(folder, 0), count) if isinstance(known, dict) else 0
    files = opened - again
    return (opened / files, files) if files else (None, 0)


def _samples_files(process: ProcessRecord) -> Iterator[tuple[str, int]]:
    """Folder and number of the files that a process opened, without those of programs."""
    here, library = str(process.info.get("cwd") or "/"), _library(process)
    counts = process.names.files.get("dirs")
    for folder, count in counts.items() if isinstance(counts, dict) else ():
        whole = os.path.normpath(os.path.join(here, folder))
        if isinstance(count, int) and not _PROGRAM.search(whole) and not whole.startswith(library):
            yield folder, count


def files_per_sample(processes: Iterable[ProcessRecord], samples: int) -> float | None:
    """Files that these processes opened for a sample, over the whole record; None: not counted."""
    opened = sum(count for process in processes for _, count in _samples_files(process))
    return opened / samples if opened and samples else None
