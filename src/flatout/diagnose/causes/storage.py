"""Causes in the storage of the data."""

from __future__ import annotations

from flatout.diagnose.cause import COMPUTING_CAUSES, Found, Lacks, cause
from flatout.diagnose.evidence import hottest, split
from flatout.diagnose.sentences import what_workers_do
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.fetch_changes import storage_share, without_reading
from flatout.predict.pipeline import Change
from flatout.results import Evidence
from flatout.units import duration, percent, size


def source_evidence(loader: LoaderStats) -> tuple[Evidence, ...]:
    """The peers and the client library that data came from, and the mean wait for a file."""
    evidence = []
    by = f" with {loader.storage.client}" if loader.storage.client else ""
    if loader.storage.peers:
        evidence.append(
            Evidence(f"connected to {', '.join(loader.storage.peers[:3])}{by}", {"peers": len(loader.storage.peers)})
        )
    elif by:
        evidence.append(Evidence(f"read{by}", {"client": loader.storage.client or ""}))
    cold, warm = loader.storage.file_cold_s, loader.storage.file_warm_s
    times = [f"{duration(value)} {word}" for value, word in ((cold, "cold"), (warm, "warm")) if value is not None]
    if times:
        values = {"cold_s": cold, "warm_s": warm}
        known: dict[str, float | int | str] = {name: value for name, value in values.items() if value is not None}
        evidence.append(Evidence(f"a file is waited for {', '.join(times)}", known))
    return tuple(evidence)


@cause(
    "waiting",
    needs_loader=True,
    # Workers that wait for bytes have cores to spare, and more workers only overlap the latency.
    hides=(*COMPUTING_CAUSES, "too_few_workers", "shallow_prefetch"),
    sentence=what_workers_do,
)
def storage_latency(context: Context) -> Found | Lacks | None:
    """Fetches are blocked in reads of a disk or a network, and the training waits for them."""
    run, loader, model = context.run, context.loader, context.model
    if run.ledger.share("batch_wait") < NOISE_SHARE:
        return None
    parts = split(loader)
    if parts.blocked is None:
        return Lacks("blocked time of the fetching threads was not measured")
    # A lock or a sleep blocks as well: only stacks show what a blocked thread waits for.
    if model.recovered(Change(fetch_blocked_factor=0.0)) < NOISE_SHARE:
        return None
    if not loader.functions.blocked_groups:
        because = "fetches are blocked, but there are no stack samples to separate reads from locks"
        return Lacks(because)
    reading = storage_share(loader)
    share = model.recovered(without_reading(loader))
    if share < NOISE_SHARE:
        return None
    evidence = [
        parts.evidence(),
        Evidence(f"{percent(reading)} of the blocked time is in reads", {"reading": reading}),
    ]
    if loader.storage.uncached_bytes_per_sample:
        evidence.append(
            Evidence(
                f"{size(loader.storage.uncached_bytes_per_sample)} of a sample come from storage, not from memory",
                {"storage_bytes_per_sample": loader.storage.uncached_bytes_per_sample},
            )
        )
    if loader.storage.mounts:
        mount = max(loader.storage.mounts, key=lambda name: loader.storage.mounts[name])
        evidence.append(Evidence(f"most files are on {mount}", {"mount": mount, "share": loader.storage.mounts[mount]}))
    evidence += source_evidence(loader)
    return Found(
        title="fetches wait for storage",
        share=share,
        confidence=0.9,
        evidence=(*evidence, *hottest(loader.functions.blocked_lines)),
    )
