"""Causes in where the data lie."""

from __future__ import annotations

from flatout.diagnose.causes.fetching import data_of, hottest, split
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.fetch_changes import storage_share, without_reading
from flatout.predict.pipeline import Change
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import duration, percent, size


def source_evidence(loading: LoaderStats) -> tuple[Evidence, ...]:
    """Who was read from, with what, and how long a file is waited for."""
    evidence = []
    by = f" with {loading.client}" if loading.client else ""
    if loading.peers:
        evidence.append(Evidence(f"connected to {', '.join(loading.peers[:3])}{by}", {"peers": len(loading.peers)}))
    elif by:
        evidence.append(Evidence(f"read{by}", {"client": loading.client or ""}))
    cold, warm = loading.file_cold_s, loading.file_warm_s
    times = [f"{duration(value)} {word}" for value, word in ((cold, "cold"), (warm, "warm")) if value is not None]
    if times:
        values = {"cold_s": cold, "warm_s": warm}
        known: dict[str, float | int | str] = {name: value for name, value in values.items() if value is not None}
        evidence.append(Evidence(f"a file is waited for {', '.join(times)}", known))
    return tuple(evidence)


def storage_latency(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Fetches are blocked in reads of a disk or a network, and the training waits for them."""
    data = data_of(view, "storage_latency")
    if not isinstance(data, tuple):
        return data
    loading, model = data
    if view.ledger.share("batch_wait") < NOISE_SHARE:
        return None
    parts = split(loading)
    if parts.blocked is None:
        return NotMeasured("storage_latency", "blocked time of the fetching threads was not measured")
    # A lock or a sleep blocks as well: only stacks tell what a blocked thread waits for.
    if model.recovered(Change(fetch_blocked_factor=0.0)) < NOISE_SHARE:
        return None
    if not loading.blocked_groups:
        because = "fetches are blocked, but there are no stack samples to tell reads from locks"
        return NotMeasured("storage_latency", because)
    reading = storage_share(loading)
    share = model.recovered(without_reading(loading))
    if share < NOISE_SHARE:
        return None
    evidence = [
        parts.evidence(),
        Evidence(f"{percent(reading)} of the blocked time is in reads", {"reading": reading}),
    ]
    if loading.storage_bytes_per_sample:
        evidence.append(
            Evidence(
                f"{size(loading.storage_bytes_per_sample)} of a sample come from storage, not from memory",
                {"storage_bytes_per_sample": loading.storage_bytes_per_sample},
            )
        )
    if loading.mounts:
        mount = max(loading.mounts, key=lambda name: loading.mounts[name])
        evidence.append(Evidence(f"most files are on {mount}", {"mount": mount, "share": loading.mounts[mount]}))
    evidence += source_evidence(loading)
    return Cause(
        id="storage_latency",
        title="fetches wait for storage",
        share=share,
        confidence=view.confidence(0.9),
        evidence=(*evidence, *hottest(loading.blocked_lines)),
    )
