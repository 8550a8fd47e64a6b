"""Causes between the workers and the training: order, depth, hand-over, collating, locks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flatout.diagnose.causes.fetching import data_of, hottest, split
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.fetch_changes import COPY_BPS, LARGE_BATCH, collate_share, fewer_bytes, freeing_s, group_share
from flatout.predict.pipeline import Change
from flatout.predict.rate_model import LOCK_GROUPS
from flatout.predict.workers import enough_prefetch
from flatout.results import Cause, Evidence, NotMeasured
from flatout.units import duration, percent, size

# Supply that exceeds the demand by less is not told from one that just meets it.
_AMPLE = 1.1


def sample_skew(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Slow samples hold up batches behind them that are made already, since batches are delivered in order."""
    data = data_of(view, "sample_skew")
    if not isinstance(data, tuple):
        return data
    loading, _ = data
    if loading.head_of_line_s is None or not loading.in_order:
        return None
    share = min(loading.head_of_line_s / view.ledger.window_s, view.ledger.share("batch_wait"))
    median = float(np.median(loading.fetch_s))
    slow = float(np.quantile(loading.fetch_s, 0.99)) / median if median > 0 else 1.0
    if share < NOISE_SHARE:
        return None
    evidence = [
        Evidence(
            f"{percent(share)} of the time the training waits for one batch while a later one is ready",
            {"head_of_line": share},
        ),
        Evidence(f"the slowest hundredth of the batches take {slow:.1f} times the median one", {"slow_factor": slow}),
    ]
    if len(loading.item_s) > 1:
        item, worst = float(np.median(loading.item_s)), float(loading.item_s.max())
        evidence.append(
            Evidence(
                f"a sample takes {duration(item)} in the median, {duration(worst)} at the most",
                {"item_s": item, "worst_s": worst},
            )
        )
    return Cause(
        id="sample_skew",
        title="slow samples hold up the batches behind them",
        share=share,
        confidence=view.confidence(0.85),
        evidence=tuple(evidence),
    )


def shallow_prefetch(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Workers make batches fast enough on average, but too few are made ahead to carry a slow spell."""
    data = data_of(view, "shallow_prefetch")
    if not isinstance(data, tuple):
        return data
    loading, model = data
    if loading.num_workers == 0 or loading.prefetch_factor is None:
        return None
    limits = replace(model.now, efficiency=1.0).limits()
    supply = min(rate for name, rate in limits.items() if name != "training")
    depth = enough_prefetch(view, model, loading.num_workers)
    if supply < _AMPLE * limits["training"] or depth is None or depth <= loading.prefetch_factor:
        return None
    other = sum(view.ledger.share(f"batch_wait.{part}") for part in ("ipc", "worker_startup"))
    late = (loading.head_of_line_s or 0.0) / view.ledger.window_s
    share = view.ledger.share("batch_wait") - other - late
    if share < NOISE_SHARE:
        return None
    ahead = loading.num_workers * loading.prefetch_factor
    ready = "" if loading.mean_ready is None else f", {loading.mean_ready:.1f} of them ready when one is asked for"
    return Cause(
        id="shallow_prefetch",
        title="too few batches are made ahead to carry a slow spell",
        share=share,
        confidence=view.confidence(0.7),
        evidence=(
            Evidence(
                f"workers could make {supply / limits['training']:.1f} times what the training takes, "
                f"yet it waits {percent(view.ledger.share('batch_wait'))} of the time",
                {"supply_over_demand": supply / limits["training"]},
            ),
            Evidence(f"at most {ahead} batches are made ahead{ready}", {"ahead": ahead}),
        ),
    )


def fat_samples(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Handing batches from the workers to the training takes long, since they are large."""
    data = data_of(view, "fat_samples")
    if not isinstance(data, tuple):
        return data
    loading, model = data
    if loading.num_workers == 0 or (loading.batch_bytes or 0) < LARGE_BATCH:
        return None
    share = model.recovered(fewer_bytes(view, model, 0.0))
    if share < NOISE_SHARE:
        return None
    collate, freeing = _mean(loading.collate_s), freeing_s(view) / model.batches
    evidence = [
        Evidence(
            f"copying them together takes a worker {duration(collate)} a batch, freeing them again the training "
            f"{duration(freeing)}",
            {"collate_s": collate, "freeing_s": freeing},
        )
    ]
    if loading.batch_bytes:
        read = loading.bytes_read_per_sample
        each = loading.batch_bytes * loading.batches / max(loading.samples, 1)
        beside = f", {size(read)} were read for it" if read else ""
        evidence.append(
            Evidence(
                f"a batch has {size(loading.batch_bytes)}, a sample {size(each)}{beside}",
                {"batch_bytes": loading.batch_bytes, "sample_bytes": each},
            )
        )
    if len(loading.serialize_s):
        sending, taking = float(loading.serialize_s.mean()), _mean(loading.deserialize_s)
        evidence.append(
            Evidence(
                f"a worker takes {duration(sending)} to send one, the training {duration(taking)} to take it",
                {"serialize_s": sending, "deserialize_s": taking},
            )
        )
    return Cause(
        id="fat_samples",
        title="batches are large to hand over",
        share=share,
        confidence=view.confidence(0.8),
        evidence=tuple(evidence),
    )


def slow_collate(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Putting samples together into a batch takes longer than copying them."""
    data = data_of(view, "slow_collate")
    if not isinstance(data, tuple):
        return data
    loading, model = data
    part = collate_share(loading)
    if not part or view.ledger.share("batch_wait") < NOISE_SHARE:
        return None
    each = _mean(loading.collate_s)
    copying = (loading.batch_bytes or 0) / COPY_BPS
    avoidable = part * max(0.0, 1.0 - copying / each)
    share = model.recovered(Change(fetch_cpu_factor=1.0 - avoidable))
    if share < NOISE_SHARE:
        return None
    return Cause(
        id="slow_collate",
        title="putting samples together into batches takes long",
        share=share,
        confidence=view.confidence(0.85),
        evidence=(
            Evidence(
                f"collating takes {duration(each)} a batch, {percent(part)} of its fetch; "
                f"copying its bytes once would take about {duration(copying)}",
                {"collate_s": each, "of_fetch": part, "copy_s": copying},
            ),
            split(loading).evidence(),
        ),
    )


def serialized_workers(view: MeasuredRun) -> Cause | NotMeasured | None:
    """Workers wait for each other at a lock, or for one thing that only one of them can use."""
    data = data_of(view, "serialized_workers")
    if not isinstance(data, tuple):
        return data
    loading, _ = data
    parts = split(loading)
    if loading.num_workers < 2 or parts.blocked is None:
        return None
    lock = group_share(loading.blocked_groups, LOCK_GROUPS)
    share = view.ledger.share("batch_wait") * parts.blocked * lock
    if share < NOISE_SHARE:
        return None
    return Cause(
        id="serialized_workers",
        title="workers wait for each other at a lock",
        share=share,
        confidence=view.confidence(0.85),
        evidence=(
            Evidence(
                f"{percent(parts.blocked * lock)} of the time of fetches is spent waiting for a lock: "
                "more workers only make the queue longer",
                {"lock": lock, "blocked": parts.blocked},
            ),
            parts.evidence(),
            *hottest(loading.blocked_lines),
        ),
    )


def _mean(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float(values.mean()) if len(values) else 0.0
