"""One plain sentence that says what holds the run back, and the command to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from flatout.diagnose.causes.fetching import split
from flatout.diagnose.ranking import HEALTHY
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.results import Cause, Remedy
from flatout.wording import counted, percent

NO_STEP = "No training step was seen, so there is nothing to diagnose."
ONE_STEP = "Only one training step was complete: record for longer, such as with --steps 12."

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


def verdict(view: MeasuredRun | None, causes: Sequence[Cause]) -> str:
    """Say in one sentence where the time goes.

    Args:
        view: the measured run; None when no training step was seen.
        causes: in rank order.
    """
    if view is None:
        return NO_STEP
    if view.ledger.window_s <= 0 or view.ledger.steps.count == 0:
        return ONE_STEP
    if not causes or (causes[0].id != HEALTHY and causes[0].share < MATERIAL_SHARE):
        return _unexplained(view)
    cause, share = causes[0], percent(causes[0].share)
    wait = percent(view.ledger.share("batch_wait"))
    match cause.id:
        case "no_workers":
            return f"The training stands still {wait} of the time to fetch its batches itself: num_workers is 0."
        case "too_few_workers" | "cpu_decode" | "cpu_transform" | "storage_latency":
            return f"{_waiting(view)}: {_workers_do(view)}."
        case "too_many_workers":
            return f"{_waiting(view)}: the workers' threads take turns on {_cores(view)}."
        case "worker_restart":
            return f"Starting workers anew for every epoch takes {share} of the time."
        case "own_input":
            where = _where(view, "batch_wait")
            return f"The training waits {wait} of the time for input that comes from no DataLoader{where}."
        case "main_process_work":
            return f"Code of the training loop outside the model takes {share} of the time{_where(view, 'host_other')}."
        case "logging":
            return f"Writing logs and metrics takes {share} of the time{_where(view, 'logging')}."
        case "checkpoint":
            return f"The training stands still {share} of the time while checkpoints are written."
        case "validation":
            return f"Validation takes {share} of the time."
        case "small_batch":
            return f"Costs that every step has once, whatever the batch size, take {share} of the time."
        case "device_sync":
            where = _where(view, "device_sync")
            return f"The GPU idles {share} of the time while the training reads values back from it{where}."
        case _ if cause.id == HEALTHY:
            return (
                f"Nothing to gain from data: the model's own computation takes {share} of the time, "
                f"waiting for batches {wait}."
            )
    return f"{cause.title[:1].upper()}{cause.title[1:]}: {share} of the time."


def next_command(run_id: str, command: Sequence[str], causes: Sequence[Cause], remedies: Sequence[Remedy] = ()) -> str:
    """The command to type next.

    Args:
        run_id: id of the diagnosed run.
        command: the recorded training command.
        causes: in rank order.
        remedies: those that can be put into the command are tried by ``flatout fix``.
    """
    # What has to be prepared first, such as a copy of the data, has no settings yet: fix prepares it.
    if any((r.settings or r.mechanics) and r.semantic_class == "identical" for r in remedies):
        return f"flatout fix -- {shlex.join(command)}"
    if causes and causes[0].id == HEALTHY:
        return f"flatout report {run_id} --markdown"
    # Measure again: after the first remedy, or over the whole run when nothing was found.
    full = "" if causes else "--full "
    return f"flatout profile {full}-- {shlex.join(command)}"


def _waiting(view: MeasuredRun) -> str:
    return f"The {view.waiter} waits {percent(view.ledger.share('batch_wait'))} of the time for batches"


def _workers_do(view: MeasuredRun) -> str:
    """What the fetching side spends its time on."""
    loading = view.loading
    if loading is None:
        return "they come without a DataLoader"
    who = f"each of the {loading.num_workers} workers spends" if loading.num_workers > 1 else "its only worker spends"
    if loading.num_workers == 0:
        who = "fetching in the training process spends"
    share, what = _main_work(loading)
    if what is None:
        return f"{counted(loading.num_workers, 'worker')} cannot fetch them in time"
    return f"{who} {percent(share)} of its time {what}"


def _main_work(loading: LoaderStats) -> tuple[float, str | None]:
    """The largest part of a worker's time, 0..1, in words."""
    parts = split(loading)
    fetching = 1.0 - (loading.worker_idle_share or 0.0)
    if parts.cpu is None or parts.blocked is None or parts.fetch_s == 0:
        return 0.0, None
    if parts.cpu >= parts.blocked:
        groups, named, rest, part = loading.cpu_groups, _COMPUTING, "computing samples", parts.cpu
    else:
        groups, named, rest, part = loading.blocked_groups, _BLOCKED, "blocked", parts.blocked
    top = max(groups, key=lambda group: groups[group], default=None)
    if top is None or top not in named:
        return part * fetching, rest
    return part * groups[top] * fetching, named[top]


def _unexplained(view: MeasuredRun) -> str:
    """No cause of a material share was found: say what is largest, and no more."""
    wait = view.ledger.account("batch_wait")
    if wait and wait.share >= MATERIAL_SHARE:
        parts = max(wait.children, key=lambda part: part.seconds, default=None)
        most = f" (most of it: {parts.label}, {percent(parts.share)})" if parts else ""
        return f"{_waiting(view)}{most}: {_workers_do(view)}, and no known cause explains most of it."
    if not view.ledger.accounts:
        return "No cause was found, and the time of the steps could not be divided."
    largest = max(view.ledger.accounts, key=lambda account: account.seconds)
    return f"No cause stands out: the largest part of the time is {largest.label}, {percent(largest.share)}."


def _where(view: MeasuredRun, account: str) -> str:
    lines = view.lines(account, 1)
    return f" ({lines[0].file}:{lines[0].line})" if lines else ""


def _cores(view: MeasuredRun) -> str:
    if view.cores is None:
        return "the cores"
    return f"{view.cores:.3g} core" if view.cores == 1 else f"{view.cores:.3g} cores"
