"""Parts of the verdict that several causes share."""

from __future__ import annotations

from flatout.diagnose.evidence import split
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.context import Context
from flatout.results import Cause
from flatout.units import counted, percent

# What a fetching thread does, as a sentence says it.
_COMPUTING = {
    "decode": "decoding files",
    "decompress": "decompressing",
    "transform": "transforming samples",
    "convert": "converting arrays",
    "read": "reading files",
}
_BLOCKED = {
    "read": "waiting for files",
    "network": "waiting for the network",
    "decode": "waiting for files",
    "decompress": "waiting for files",
    "lock": "waiting for a lock",
}


def what_workers_do(context: Context, cause: Cause) -> str:
    """A sentence: how long the training waits, and what the fetching side spends its time on meanwhile."""
    return f"{waiting(context.run)}: {workers_do(context.run)}."


def waiting(run: MeasuredRun) -> str:
    """The share of the time that the GPU or the training waits for batches."""
    return f"The {run.waiter} waits {percent(run.ledger.share('batch_wait'))} of the time for batches"


def where(run: MeasuredRun, account: str) -> str:
    """The hottest line of an account in brackets; empty when no sample fell into it."""
    lines = run.lines(account, 1)
    return f" ({lines[0].file}:{lines[0].line})" if lines else ""


def cores(run: MeasuredRun) -> str:
    """The usable cores, counted."""
    if run.cores is None:
        return "the cores"
    return f"{run.cores:.3g} core" if run.cores == 1 else f"{run.cores:.3g} cores"


def workers_do(run: MeasuredRun) -> str:
    """A clause that says what the fetching side spends its time on."""
    loader = run.loading
    if loader is None:
        return "they come without a DataLoader"
    workers = loader.settings.num_workers
    who = f"each of the {workers} workers spends" if workers > 1 else "its only worker spends"
    if workers == 0:
        who = "fetching in the training process spends"
    share, what = _main_work(loader)
    if what is None:
        return f"{counted(workers, 'worker')} cannot fetch them in time"
    return f"{who} {percent(share)} of its time {what}"


def _main_work(loader: LoaderStats) -> tuple[float, str | None]:
    """The largest part of a worker's time, 0..1, in words."""
    parts = split(loader)
    fetching = 1.0 - (loader.workers.idle_share or 0.0)
    if parts.cpu is None or parts.blocked is None or parts.fetch_s == 0:
        return 0.0, None
    if parts.cpu >= parts.blocked:
        groups, named, rest, part = loader.functions.cpu_groups, _COMPUTING, "computing samples", parts.cpu
    else:
        groups, named, rest, part = loader.functions.blocked_groups, _BLOCKED, "blocked", parts.blocked
    top = max(groups, key=lambda group: groups[group], default=None)
    if top is None or top not in named:
        return part * fetching, rest
    return part * groups[top] * fetching, named[top]
