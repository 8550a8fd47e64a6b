"""Causes in the reads: their amount, their number and their source."""

from __future__ import annotations

from collections.abc import Callable

from flatout.diagnose.cause import COMPUTING_CAUSES, Found, Lacks, cause
from flatout.diagnose.causes.storage import source_evidence
from flatout.diagnose.evidence import hottest, split
from flatout.measure.array_reads import patch_shape, sample_values
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.fetch_changes import (
    AMPLIFIED,
    PICTURES,
    read_bytes,
    read_ratio,
    reading_less,
    sample_bytes,
    storage_share,
    stored_bytes,
    unpacked_ratio,
    without_reading,
)
from flatout.results import Epoch, Evidence
from flatout.units import counted, duration, size

# A first byte of a remote store takes 10 ms or more, and one stream delivers about 100 MB/s: larger reads wait for
# bytes rather than for the first one.
_LARGE_BYTES = 1 << 20
_SEVERAL_FILES = 2.0
_LARGE_PART = 0.7  # of another cause's share


@cause(
    "waiting",
    needs_loader=True,
    # Reading what nobody needs comes before reading it faster, and before more workers that read it.
    hides=("storage_latency", "storage_bandwidth", "small_files", "too_few_workers", *COMPUTING_CAUSES),
    # Augmentation that is the larger bill is one of its own.
    hides_from=_LARGE_PART,
)
def read_amplification(context: Context) -> Found | Lacks | None:
    """Far more bytes are read, or unpacked, than the samples keep."""
    run, loader, model = context.run, context.loader, context.model
    used, read = sample_bytes(loader), read_bytes(run)
    unpacked, arrays = unpacked_ratio(loader), loader.storage.arrays
    if (used is None or read is None) and unpacked is None:
        if run.ledger.share("batch_wait") < NOISE_SHARE:
            return None
        return Lacks("bytes read or bytes used by a sample were not measured")
    ratio = amplification(run, loader)
    # Packed volumes may be small files.
    if ratio < AMPLIFIED or (unpacked is None and (read or 0.0) < _LARGE_BYTES / 4):
        return None
    if unpacked is None and loader.functions.mostly_searches:
        return None  # a database that goes through a table computes: cpu_read says so
    needless = 1.0 - 1.0 / ratio
    reading = storage_share(loader)
    share = model.recovered(reading_less(loader, needless))
    if share < NOISE_SHARE:
        return None
    if unpacked is not None:
        volumes = (arrays and arrays.volumes) or patch_shape(loader.delivery)
        whole = "volumes" if volumes else "arrays"
        title, amount = f"whole {whole} are read and unpacked for each patch", _unpacked(run, loader)
    else:
        title, amount = "far more is read than the samples keep", _read(read or 0.0, used or 0.0, ratio)
    return Found(
        title=title,
        share=share,
        # Where whole arrays are read, and most of the fetch goes to what is made of them, all of each may be needed.
        confidence=0.85 if unpacked is not None or arrays is None or arrays.package == PICTURES else 0.5,
        evidence=(
            *amount,
            split(loader).evidence(),
            *hottest(loader.functions.blocked_lines if reading else loader.functions.cpu_lines),
        ),
    )


def _read(read: float, used: float, ratio: float) -> tuple[Evidence, ...]:
    text = f"{size(read)} are read for a sample of {size(used)}: {ratio:.0f} times as much"
    return (Evidence(text, {"read_bytes": read, "used_bytes": used, "ratio": ratio}),)


def amplification(run: MeasuredRun, loader: LoaderStats) -> float:
    """How many times as much is read, or unpacked, as a sample keeps; 0: not measured."""
    return max(read_ratio(run, loader) or 0.0, unpacked_ratio(loader) or 0.0)


def _unpacked(run: MeasuredRun, loader: LoaderStats) -> tuple[Evidence, ...]:
    """What a patch is cut from, and the memory that this takes in a worker."""
    arrays, kept = loader.storage.arrays, sample_values(loader.delivery)
    ratio, read, stored = unpacked_ratio(loader), read_ratio(run, loader), stored_bytes(loader)
    if arrays is None or kept is None or ratio is None or stored is None:
        return ()
    found = [
        Evidence(
            f"{arrays.package} gives {size(arrays.bytes)} of arrays for a sample, which keeps {size(stored)} of it: "
            f"{ratio:.0f} times as much, in {duration(arrays.seconds)}",
            {"unpacked_values": arrays.values, "used_values": kept, "ratio": ratio, "unpack_s": arrays.seconds},
        )
    ]
    if read is not None:
        text = f"{read:.2g} bytes are read from files per byte of a patch ({size(read * stored)})"
        found.append(Evidence(text, {"read_bytes": read * stored, "used_bytes": stored, "read_ratio": read}))
    memory, workers = run.usage.worker_bytes, loader.settings.num_workers
    if memory and workers:
        text = f"a worker holds {size(memory)} of memory at most, {counted(workers, 'worker')} {size(memory * workers)}"
        found.append(Evidence(text, {"worker_bytes": memory, "num_workers": workers}))
    return tuple(found)


@cause(
    "waiting",
    needs_loader=True,
    hides=("storage_latency", "too_few_workers"),
)
def storage_bandwidth(context: Context) -> Found | Lacks | None:
    """Samples are large: the transfer of their bytes takes the time, not the latency of the first one."""
    run = context.run
    return _reading(
        context,
        "storage cannot deliver the bytes as fast as the training takes them",
        lambda loader: (read_bytes(run) or 0.0) >= _LARGE_BYTES and not _amplified(run),
    )


@cause(
    "waiting",
    needs_loader=True,
    hides=("storage_latency", "too_few_workers"),
)
def small_files(context: Context) -> Found | Lacks | None:
    """Each sample opens several files and waits for each of them."""
    run = context.run
    return _reading(
        context,
        "each sample opens several small files, one after the other",
        lambda loader: (
            (loader.storage.files_per_sample or 0.0) >= _SEVERAL_FILES
            and (read_bytes(run) or 0.0) / (loader.storage.files_per_sample or 1.0) < _LARGE_BYTES
        ),
    )


def _reading(context: Context, title: str, applies: Callable[[LoaderStats], bool]) -> Found | Lacks | None:
    run, loader, model = context.run, context.loader, context.model
    parts = split(loader)
    if run.ledger.share("batch_wait") < NOISE_SHARE or parts.blocked is None or not applies(loader):
        return None
    reading = storage_share(loader)
    share = model.recovered(without_reading(loader))
    if share < NOISE_SHARE:
        return None
    read = read_bytes(run) or 0.0
    blocked_s = parts.fetch_s * parts.blocked * reading * loader.delivery.batches / max(loader.delivery.samples, 1)
    speed = f", {size(read / blocked_s)}/s while it is waited for" if blocked_s > 0 else ""
    files = f" in {loader.storage.files_per_sample:.1f} files" if loader.storage.files_per_sample else ""
    return Found(
        title=title,
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"a sample has {size(read)}{files}, waited for {duration(blocked_s)}{speed}",
                {"bytes": read, "blocked_s": blocked_s, "files": loader.storage.files_per_sample or 0.0},
            ),
            *source_evidence(loader),
            parts.evidence(),
            *hottest(loader.functions.blocked_lines),
        ),
    )


@cause(
    "data",
    # A single cold pass says nothing about the storage.
    hides=("storage_latency", "storage_bandwidth", "small_files"),
)
def cold_cache(context: Context) -> Found | Lacks | None:
    """The first pass reads from storage and takes longer than later ones, which read from memory."""
    run = context.run
    epochs = run.ledger.epochs
    cold = [epoch for epoch in epochs if epoch.cold and epoch.steps]
    warm = [epoch for epoch in epochs if epoch.cold is False and epoch.steps and epoch.index > 0]
    if not cold or not warm:
        return None
    pace = min(epoch.seconds / epoch.steps for epoch in warm)
    # Reading is waited for: what else makes the steps of a pass slow is not lost to it.
    wait_pace = min(_waited_s(epoch) / epoch.steps for epoch in warm)
    lost = sum(
        max(min(epoch.seconds - epoch.steps * pace, _waited_s(epoch) - epoch.steps * wait_pace), 0.0) for epoch in cold
    )
    share = min(lost / run.ledger.window_s, 1.0)
    if share < NOISE_SHARE:
        return None
    slow = cold[0].seconds / cold[0].steps
    return Found(
        title="the first epoch reads from storage, later ones from memory",
        share=share,
        confidence=0.85,
        evidence=(
            Evidence(
                f"a step takes {duration(slow)} in the cold epoch, {duration(pace)} in a warm one",
                {"cold_step_s": slow, "warm_step_s": pace},
            ),
            Evidence(f"{duration(lost)} are lost to it, once", {"lost_s": lost}),
        ),
    )


def _waited_s(epoch: Epoch) -> float:
    return epoch.shares.get("batch_wait", 0.0) * epoch.seconds


def _amplified(run: MeasuredRun) -> bool:
    return run.loading is not None and amplification(run, run.loading) >= AMPLIFIED
