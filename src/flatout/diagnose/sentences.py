"""Parts of the verdict that several causes share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import PurePath

from flatout.diagnose.evidence import split
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.measured_run import MeasuredRun
from flatout.predict.context import Context
from flatout.results import Cause, Line
from flatout.units import counted, percent

# What a thread that makes batches does, as a sentence says it.
COMPUTING = {
    "decode": "decoding files",
    "decompress": "decompressing",
    "transform": "transforming samples",
    "convert": "converting arrays",
    "read": "reading files or databases",
    "lookup": "looking rows up in a table",
    "tokenise": "tokenising text",
    "network": "receiving data",
}
BLOCKED = {
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


def called_from(lines: Iterable[Line]) -> str:
    """The user's function and line that a clause speaks of, in brackets; empty if the hottest line is a package's."""
    line = next(iter(lines), None)
    if line is None or re.search(r"/(site|dist)-packages/", line.file):
        return ""
    # A comprehension or a lambda is a part of the function that it is written in.
    function = re.sub(r"(\.<locals>)?\.<\w+>$", "", line.function).rpartition("<locals>.")[2]
    return f" ({function}, {PurePath(line.file).name}:{line.line})"


def what_workers_do_for(groups: tuple[str, ...], doing: str) -> Callable[[Context, Cause], str]:
    """The same sentence for a cause in some function groups, with all of them where another group alone is larger."""

    def sentence(context: Context, cause: Cause) -> str:
        loader = context.loader
        parts, shares = split(loader), loader.functions.cpu_groups
        mine = sum(shares.get(name, 0.0) for name in groups)
        largest = max(shares, key=lambda name: shares[name], default=groups[0])
        if parts.cpu is None or parts.cpu < (parts.blocked or 0.0) or largest in groups or mine < shares[largest]:
            return what_workers_do(context, cause)
        share = parts.cpu * mine * (1.0 - (loader.workers.idle_share or 0.0))
        return f"{waiting(context.run)}: {_who(loader)} {percent(share)} of its time {doing}."

    return sentence


def what_workers_do_most(*groups: str) -> Callable[[Context, Cause], str]:
    """The sentence of a cause in some function groups: what the fetching side spends on the largest of them."""

    def sentence(context: Context, cause: Cause) -> str:
        loader = context.loader
        parts, shares = split(loader), loader.functions.cpu_groups
        group = max(groups, key=lambda name: shares.get(name, 0.0))
        busy = 1.0 - (loader.workers.idle_share or 0.0)
        share = (parts.cpu or 0.0) * shares.get(group, 0.0) * busy
        package = loader.functions.packages.get(group)
        by = f" with {package}" if package else ""
        caller = called_from(loader.functions.lines_of_group.get(group, ()))
        clause = f"{_who(loader)} {percent(share)} of its time {COMPUTING[group]}{by}{caller}"
        if parts.runqueue is not None and parts.runqueue > (parts.cpu or 0.0):
            clause += f", and {percent(parts.runqueue * busy)} waiting for a core"
        return f"{waiting(context.run)}: {clause}."

    return sentence


def workers_do(run: MeasuredRun) -> str:
    """A clause that says what the fetching side spends its time on."""
    loader = run.loading
    if loader is None:
        return "they come without a DataLoader"
    share, what = _main_work(loader)
    if what is None:
        return f"{counted(loader.settings.num_workers, 'worker')} cannot fetch them in time"
    return f"{_who(loader)} {percent(share)} of its time {what}"


def _who(loader: LoaderStats) -> str:
    workers = loader.settings.num_workers
    if workers == 0:
        return "fetching in the training process spends"
    return f"each of the {workers} workers spends" if workers > 1 else "its only worker spends"


def _main_work(loader: LoaderStats) -> tuple[float, str | None]:
    """The largest part of a worker's time, 0..1, in words."""
    parts = split(loader)
    fetching = 1.0 - (loader.workers.idle_share or 0.0)
    if parts.cpu is None or parts.blocked is None or parts.fetch_s == 0:
        return 0.0, None
    if parts.cpu >= parts.blocked:
        groups, named, rest, part = loader.functions.cpu_groups, COMPUTING, "computing samples", parts.cpu
        lines = loader.functions.lines_of_group
    else:
        groups, named, rest, part = loader.functions.blocked_groups, BLOCKED, "blocked", parts.blocked
        lines = {}
    top = max(groups, key=lambda group: groups[group], default=None)
    if top is None or top not in named:
        return part * fetching, rest
    return part * groups[top] * fetching, named[top] + called_from(lines.get(top, ()))
