"""Causes in how much is read, in how many pieces, and from where."""

from __future__ import annotations

from collections.abc import Callable

from flatout.diagnose.causes.fetching import data_of, hottest, split
from flatout.diagnose.causes.storage import source_evidence
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.fetch_changes import (
    read_bytes,
    reading_less,
    sample_bytes,
    storage_share,
    without_reading,
)
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import duration, size

# Compressed files are read in less than they are used in; float data in just as much. Four times is another matter.
_AMPLIFIED = 4.0
# A first byte of a remote store takes 10 ms or more, and one stream brings about 100 MB/s: from here on it is bytes
# that are waited for, and not the first of them.
_LARGE_BYTES = 1 << 20
_SEVERAL_FILES = 2.0


def read_amplification(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Far more bytes are read, or unpacked, than the samples keep."""
    data = data_of(view, "read_amplification")
    if not isinstance(data, tuple):
        return data
    loading, model = data
    used, read = sample_bytes(loading), read_bytes(view)
    if used is None or read is None:
        if view.ledger.share("batch_wait") < NOISE_SHARE:
            return None
        return NotMeasured("read_amplification", "bytes read or bytes used by a sample were not measured")
    ratio = read / used if used else 0.0
    if ratio < _AMPLIFIED or read < _LARGE_BYTES / 4:
        return None
    needless = 1.0 - 1.0 / ratio
    reading = storage_share(loading)
    share = model.recovered(reading_less(loading, needless))
    if share < NOISE_SHARE:
        return None
    return Cause(
        id="read_amplification",
        title="far more is read than the samples keep",
        share=share,
        confidence=view.confidence(0.85),
        evidence=(
            Evidence(
                f"{size(read)} are read for a sample of {size(used)}: {ratio:.0f} times as much",
                {"read_bytes": read, "used_bytes": used, "ratio": ratio},
            ),
            split(loading).evidence(),
            *hottest(loading.blocked_lines if reading else loading.cpu_lines),
        ),
    )


def storage_bandwidth(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Large samples are waited for: the bytes, and not the first of them, take the time."""
    return _reading(
        view,
        "storage_bandwidth",
        "storage cannot deliver the bytes as fast as the training takes them",
        lambda loading: (read_bytes(view) or 0.0) >= _LARGE_BYTES and not _amplified(view),
    )


def small_files(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Each sample opens several files, and each of them is waited for."""
    return _reading(
        view,
        "small_files",
        "each sample opens several small files, one after the other",
        lambda loading: (
            (loading.files_per_sample or 0.0) >= _SEVERAL_FILES
            and (read_bytes(view) or 0.0) / (loading.files_per_sample or 1.0) < _LARGE_BYTES
        ),
    )


def _reading(
    view: MeasuredRun, id: str, title: str, applies: Callable[[LoaderStats], bool]
) -> Cause | NotMeasured | None:
    data = data_of(view, id)
    if not isinstance(data, tuple):
        return data
    loading, model = data
    parts = split(loading)
    if view.ledger.share("batch_wait") < NOISE_SHARE or parts.blocked is None or not applies(loading):
        return None
    reading = storage_share(loading)
    share = model.recovered(without_reading(loading))
    if share < NOISE_SHARE:
        return None
    read = read_bytes(view) or 0.0
    blocked_s = parts.fetch_s * parts.blocked * reading * loading.batches / max(loading.samples, 1)
    speed = f", {size(read / blocked_s)}/s while it is waited for" if blocked_s > 0 else ""
    files = f" in {loading.files_per_sample:.1f} files" if loading.files_per_sample else ""
    return Cause(
        id=id,
        title=title,
        share=share,
        confidence=view.confidence(0.8),
        evidence=(
            Evidence(
                f"a sample has {size(read)}{files}, waited for {duration(blocked_s)}{speed}",
                {"bytes": read, "blocked_s": blocked_s, "files": loading.files_per_sample or 0.0},
            ),
            *source_evidence(loading),
            parts.evidence(),
            *hottest(loading.blocked_lines),
        ),
    )


def cold_cache(view: MeasuredRun) -> Cause | NotMeasured | None:
    """The first pass reads from storage and takes longer than later ones, which read from memory."""
    epochs = view.ledger.epochs
    cold = [epoch for epoch in epochs if epoch.cold and epoch.steps]
    warm = [epoch for epoch in epochs if epoch.cold is False and epoch.steps and epoch.index > 0]
    if not cold or not warm:
        return None
    pace = min(epoch.seconds / epoch.steps for epoch in warm)
    lost = sum(max(epoch.seconds - epoch.steps * pace, 0.0) for epoch in cold)
    share = min(lost / view.ledger.window_s, 1.0)
    if share < NOISE_SHARE:
        return None
    slow = cold[0].seconds / cold[0].steps
    return Cause(
        id="cold_cache",
        title="the first epoch reads from storage, later ones from memory",
        share=share,
        confidence=view.confidence(0.85),
        evidence=(
            Evidence(
                f"a step takes {duration(slow)} in the cold epoch, {duration(pace)} in a warm one",
                {"cold_step_s": slow, "warm_step_s": pace},
            ),
            Evidence(f"{duration(lost)} are lost to it, once", {"lost_s": lost}),
        ),
    )


def _amplified(view: MeasuredRun) -> bool:
    used, read = sample_bytes(view.loading) if view.loading else None, read_bytes(view)
    return bool(used and read and read / used >= _AMPLIFIED)
