"""Causes between the workers and the training: order, depth, hand-over, collating, locks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flatout.diagnose.cause import COMPUTING_CAUSES, Found, Lacks, cause
from flatout.diagnose.evidence import hottest, split
from flatout.diagnose.sentences import called_from
from flatout.measure.loader_stats import mean_s
from flatout.measure.thresholds import DOMINANT_SHARE, NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.fetch_changes import (
    COPY_BYTES_PER_S,
    LARGE_BATCH,
    TOKENISE_GROUPS,
    collate_share,
    fewer_bytes,
    freeing_s,
    group_share,
    like_the_others,
)
from flatout.predict.mean_costs import LOCK_GROUPS
from flatout.predict.pipeline import Change
from flatout.predict.workers import enough_prefetch
from flatout.results import Cause, Evidence
from flatout.units import duration, percent, size

# With a smaller margin, supply may just meet demand.
_AMPLE = 1.1
_MOST = 0.4  # of the time of all samples
_SHOWN = 5  # indices


@cause(
    "waiting",
    needs_loader=True,
    # The time of a few samples, not of all.
    hides=("shallow_prefetch", "too_few_workers", *COMPUTING_CAUSES),
)
def sample_skew(context: Context) -> Found | Lacks | None:
    """A few slow samples cost most of the fetching, or block finished batches behind them."""
    run, first_of_passes = context.run, context.loader.workers.pass_first_fetch
    if first_of_passes.slow and first_of_passes.waited_s >= DOMINANT_SHARE * run.seconds("batch_wait"):
        return None  # what is slow is the start of a pass
    ordered, costly = _blocking(context), _costly(context)
    if ordered is None or costly is None:
        return ordered or costly
    first, second = sorted((ordered, costly), key=lambda found: -found.share)
    return replace(first, evidence=(*first.evidence, *second.evidence))


def _blocking(context: Context) -> Found | None:
    """Batches are delivered in order."""
    run, loader = context.run, context.loader
    if loader.delivery.head_of_line_s is None or not loader.settings.in_order:
        return None
    share = min(loader.delivery.head_of_line_s / run.ledger.window_s, run.ledger.share("batch_wait"))
    median = float(np.median(loader.fetch.wall_s))
    slow = float(np.quantile(loader.fetch.wall_s, 0.99)) / median if median > 0 else 1.0
    if share < NOISE_SHARE:
        return None
    evidence = [
        Evidence(
            f"{percent(share)} of the time the training waits for one batch while a later one is ready",
            {"head_of_line": share},
        ),
        Evidence(f"the slowest hundredth of the batches take {slow:.1f} times the median one", {"slow_factor": slow}),
    ]
    if len(loader.fetch.item_s) > 1:
        item, worst = float(np.median(loader.fetch.item_s)), float(loader.fetch.item_s.max())
        evidence.append(
            Evidence(
                f"a sample takes {duration(item)} in the median, {duration(worst)} at the most",
                {"item_s": item, "worst_s": worst},
            )
        )
    return Found(
        title="slow samples hold up the batches behind them",
        share=share,
        confidence=0.85,
        evidence=tuple(evidence),
    )


def _costly(context: Context) -> Found | None:
    """The workers compute for a few samples most of the time."""
    run, loader = context.run, context.loader
    slow, parts = loader.fetch.slow, split(loader)
    if slow is None or slow.excess < _MOST or parts.cpu is None or parts.cpu < (parts.blocked or 0.0):
        return None
    if run.ledger.share("batch_wait") < NOISE_SHARE:
        return None
    share = context.model.recovered(like_the_others(loader, slow))
    if share < NOISE_SHARE:
        return None
    which = f": {', '.join(map(str, slow.indices[:_SHOWN]))}" + (", ..." if len(slow.indices) > _SHOWN else "")
    return Found(
        title="a few samples cost most of the time of the fetching cores",
        share=share,
        confidence=0.85,
        evidence=(
            Evidence(
                f"{percent(slow.samples)} of the samples take {duration(slow.mean_s)} each, the median one "
                f"{duration(slow.median_s)}: {percent(slow.excess)} of the time of all samples",
                {"samples": slow.samples, "slow_s": slow.mean_s, "median_s": slow.median_s, "excess": slow.excess},
            ),
            *([Evidence(f"their indices in the data set{which}", {"first": slow.indices[0]})] if slow.indices else []),
        ),
    )


@cause(
    "waiting",
    needs_loader=True,
    # The mean supply suffices.
    hides=("too_few_workers",),
)
def shallow_prefetch(context: Context) -> Found | Lacks | None:
    """Workers are fast enough on average, but too few batches are prefetched to bridge slow ones."""
    run, loader, model = context.run, context.loader, context.model
    if loader.settings.num_workers == 0 or loader.settings.prefetch_factor is None:
        return None
    limits = replace(model.now, efficiency=1.0).limits()
    supply = min(rate for name, rate in limits.items() if name != "training")
    depth = enough_prefetch(run, model, loader.settings.num_workers)
    if supply < _AMPLE * limits["training"] or depth is None or depth <= loader.settings.prefetch_factor:
        return None
    other = sum(run.ledger.share(f"batch_wait.{part}") for part in ("ipc", "worker_startup"))
    late = (loader.delivery.head_of_line_s or 0.0) / run.ledger.window_s
    share = run.ledger.share("batch_wait") - other - late
    if share < NOISE_SHARE:
        return None
    ahead = loader.settings.num_workers * loader.settings.prefetch_factor
    mean_ready = loader.delivery.mean_ready
    ready = "" if mean_ready is None else f", {mean_ready:.1f} of them ready when one is asked for"
    return Found(
        title="too few batches are made ahead to carry a slow spell",
        share=share,
        confidence=0.7,
        evidence=(
            Evidence(
                f"workers could make {supply / limits['training']:.1f} times what the training takes, "
                f"yet it waits {percent(run.ledger.share('batch_wait'))} of the time",
                {"supply_over_demand": supply / limits["training"]},
            ),
            Evidence(f"at most {ahead} batches are made ahead{ready}", {"ahead": ahead}),
        ),
    )


@cause("data", needs_loader=True)
def large_batches(context: Context) -> Found | Lacks | None:
    """Handing batches from the workers to the training takes long, since they are large."""
    run, loader, model = context.run, context.loader, context.model
    if loader.settings.num_workers == 0 or (loader.delivery.batch_bytes or 0) < LARGE_BATCH:
        return None
    share = model.recovered(fewer_bytes(run, model, 0.0))
    if share < NOISE_SHARE:
        return None
    collate, freeing = mean_s(loader.fetch.collate_s), freeing_s(run) / model.batches
    evidence = [
        Evidence(
            f"copying them together takes a worker {duration(collate)} a batch, freeing them again the training "
            f"{duration(freeing)}",
            {"collate_s": collate, "freeing_s": freeing},
        )
    ]
    if loader.delivery.batch_bytes:
        read = loader.storage.bytes_read_per_sample
        each = loader.delivery.batch_bytes * loader.delivery.batches / max(loader.delivery.samples, 1)
        beside = f", {size(read)} were read for it" if read else ""
        evidence.append(
            Evidence(
                f"a batch has {size(loader.delivery.batch_bytes)}, a sample {size(each)}{beside}",
                {"batch_bytes": loader.delivery.batch_bytes, "sample_bytes": each},
            )
        )
    if len(loader.delivery.serialize_s):
        sending, taking = float(loader.delivery.serialize_s.mean()), mean_s(loader.delivery.deserialize_s)
        evidence.append(
            Evidence(
                f"a worker takes {duration(sending)} to send one, the training {duration(taking)} to take it",
                {"serialize_s": sending, "deserialize_s": taking},
            )
        )
    return Found(
        title="batches are large to hand over",
        share=share,
        confidence=0.8,
        evidence=tuple(evidence),
    )


@cause(
    "waiting",
    needs_loader=True,
    hides=("cpu_transform",),
)
def slow_collate(context: Context) -> Found | Lacks | None:
    """Putting samples together into a batch takes longer than copying them."""
    run, loader, model = context.run, context.loader, context.model
    # Text that is cut into tokens there is another cause.
    part = collate_share(loader) * (1.0 - group_share(loader.functions.collate_groups, TOKENISE_GROUPS))
    if not part or max(run.ledger.share("batch_wait"), model.now.core_wait_share) < NOISE_SHARE:
        return None
    each = mean_s(loader.fetch.collate_s)
    copying = (loader.delivery.batch_bytes or 0) / COPY_BYTES_PER_S
    avoidable = part * max(0.0, 1.0 - copying / each)
    share = model.recovered(Change(fetch_cpu_factor=1.0 - avoidable))
    if share < NOISE_SHARE:
        return None
    return Found(
        title="putting samples together into batches takes long",
        share=share,
        confidence=0.85,
        evidence=(
            Evidence(
                f"collating takes {duration(each)} a batch, {percent(part)} of its fetch; "
                f"copying its bytes once would take about {duration(copying)}",
                {"collate_s": each, "of_fetch": part, "copy_s": copying},
            ),
            split(loader).evidence(),
        ),
    )


def _chooses(context: Context, found: Cause) -> str:
    caller = called_from(context.run.lines("batch_wait.sampling"))
    return f"Choosing the indices of each batch takes {percent(found.share)} of the time{caller}."


@cause("data", needs_loader=True, sentence=_chooses)
def sampler(context: Context) -> Found | Lacks | None:
    """The sampler takes long to choose the indices of each batch, in the training process."""
    run, loader, model = context.run, context.loader, context.model
    seconds = loader.delivery.indices_s + loader.delivery.indices_ahead_s
    each_s, ahead_s = loader.delivery.indices_s / model.batches, loader.delivery.indices_ahead_s / model.batches
    change = Change(step_removed_s=each_s, step_cpu_removed_s=each_s, between_steps_removed_s=ahead_s)
    share = min(model.recovered(change), seconds / run.ledger.window_s)
    if share < NOISE_SHARE:
        return None
    text = (
        f"{duration(seconds / model.batches)} a batch, {percent(seconds / run.ledger.window_s)} of the time: "
        "in the training process, where no worker can do it"
    )
    return Found(
        title="choosing the indices of each batch takes long",
        share=share,
        confidence=0.9,
        evidence=(
            Evidence(text, {"seconds_per_batch": seconds / model.batches}),
            *hottest(run.lines("batch_wait.sampling") or run.lines("epoch_boundary.start"), 2),
        ),
    )


@cause(
    "waiting",
    needs_loader=True,
    # More workers wait in the same queue.
    hides=("too_few_workers", *COMPUTING_CAUSES),
)
def lock_contention(context: Context) -> Found | Lacks | None:
    """Workers wait for each other at a lock, or for one thing that only one of them can use."""
    run, loader = context.run, context.loader
    parts = split(loader)
    if loader.settings.num_workers < 2 or parts.blocked is None:
        return None
    lock = group_share(loader.functions.blocked_groups, LOCK_GROUPS)
    share = run.ledger.share("batch_wait") * parts.blocked * lock
    if share < NOISE_SHARE:
        return None
    return Found(
        title="workers wait for each other at a lock",
        share=share,
        confidence=0.85,
        evidence=(
            Evidence(
                f"{percent(parts.blocked * lock)} of the time of fetches is spent waiting for a lock: "
                "more workers only make the queue longer",
                {"lock": lock, "blocked": parts.blocked},
            ),
            parts.evidence(),
            *hottest(loader.functions.blocked_lines),
        ),
    )
