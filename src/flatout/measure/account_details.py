"""Children, lines of code and a note for each account, over one interval of the record."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from flatout import units
from flatout.measure import batch_wait
from flatout.measure.account_ids import ACCOUNT_OF_KIND, ACCOUNTS, CODE, IMPORTS, LABELS, UNACCOUNTED
from flatout.measure.accounts import Charged, charged_to
from flatout.measure.batch_wait import Wait, divide_waits
from flatout.measure.input_accounts import input_accounts
from flatout.measure.loader_processes import LoaderProcesses
from flatout.measure.maker_threads import maker_samples
from flatout.measure.samples import RUNNING, TOP_LINES, frames_of, top_lines, weigh_lines
from flatout.measure.timeline import Ints, intervals
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.record import Events, Names, ends
from flatout.record.packed_fields import batch_worker
from flatout.results import Account, Line

GROUP_LABELS = {"lookup": "row lookup in tables", "tokenise": "tokenise text", "other": "other functions"}
BOUNDARY_CHILDREN = {
    kinds.ITER_START: ("start", "starting an epoch (sampler, lists)"),
    kinds.WORKER_START: ("worker_startup", "waiting until new workers were ready"),
    kinds.ITER_END: ("end", "ending an epoch (shutting workers down, freeing memory)"),
}
# What the stack samples alone show of an account.
WITHOUT_EVENT = {
    "checkpoint": ("after", "with the file, right after"),
    "logging": ("calls", "other calls that log or compute metrics"),
}
LAUNCH = ("launch", "starting worker processes")
_LOADER = re.compile(r"torch/utils/data/dataloader\.py$")
_LAUNCHING = re.compile(r"/(multiprocessing|concurrent)/|/(subprocess|threading)\.py$")


@dataclass(frozen=True)
class Window:
    """The interval that a ledger divides, and what is needed to explain its accounts."""

    training: Training
    charged: Charged
    side: LoaderProcesses | None
    begin_ns: int
    end_ns: int
    queued_share: float | None = None  # of the interval, in which the training thread was ready and had no core

    @property
    def seconds(self) -> float:
        """Length of the interval."""
        return (self.end_ns - self.begin_ns) / 1e9

    def account(self, id: str, label: str, seconds: float, children: tuple[Account, ...] = ()) -> Account:
        """An account with its share of the interval."""
        return Account(id, label, seconds, self.share(seconds), children)

    def share(self, seconds: float) -> float:
        """Share of the interval."""
        return seconds / self.seconds if self.seconds else 0.0


def explain(window: Window, id: str, seconds: float, imports_s: float = 0.0) -> Account:
    """One top-level account with its children and lines. ``imports_s`` is the part of host_other spent on imports."""
    rows = window.charged.rows(id, window.begin_ns, window.end_ns)
    children: tuple[Account, ...] = ()
    lines = _LINES[id](window, rows, seconds) if id in _LINES else ()
    if id in _CHILDREN:
        children = _CHILDREN[id](window, rows)
        if id == "batch_wait" and children:
            lines = ()  # its parts have them
    elif id == "host_other":
        children, lines = _host_other(window, rows, imports_s)
    note = _checkpoint_note(window) if id == "checkpoint" else None
    return Account(id, LABELS[id], seconds, window.share(seconds), children, lines, note)


def _sampled(window: Window, rows: Ints, seconds: float) -> tuple[Line, ...]:
    """The hottest lines of the stack samples in some pieces."""
    return top_lines(weigh_lines(window.charged.samples.take(np.isin(window.charged.sample_piece, rows))), seconds)


def _lengths(window: Window, rows: Ints) -> Ints:
    """Length of each piece inside the interval, ns."""
    pieces = window.charged.pieces
    return np.minimum(pieces.end[rows], window.end_ns) - np.maximum(pieces.start[rows], window.begin_ns)


def _waited_lines(window: Window, rows: Ints, seconds: float) -> tuple[Line, ...]:
    """Lines that make the batches if no DataLoader does."""
    return _sampled(window, rows, seconds) if window.training.loader is None else ()


def _batch_wait(window: Window, rows: Ints) -> tuple[Account, ...]:
    """The wait divided by the state of the worker waited for, its fetches by their stack samples."""
    if window.side is None:
        return _own_input(window, rows)
    pieces, spans = window.charged.pieces, window.charged.spans
    owner = spans[pieces.owner[rows]]
    # A second training loader has its own workers; its waits are not divided further.
    mine = (owner["arg"] == window.side.loader) & (owner["kind"] == kinds.BATCH_WAIT)
    wait = Wait(
        np.maximum(pieces.start[rows], window.begin_ns)[mine],
        np.minimum(pieces.end[rows], window.end_ns)[mine],
        batch_worker(owner)[mine],
        owner["a"][mine].astype(np.int64),
    )
    totals = divide_waits(window.training, wait, window.side.teams, window.side.activity_of)
    totals["other"] += float(_lengths(window, rows)[~mine].sum()) / 1e9
    functions = window.side.functions
    groups = {"fetch_cpu": functions.cpu_groups, "fetch_blocked": functions.blocked_groups}
    lines = {
        "fetch_cpu": functions.cpu_lines,
        "fetch_blocked": functions.blocked_lines,
        "sampling": _lines_of_sampler(window),
    }
    children = []
    for state, label in batch_wait.LABELS.items():
        seconds = totals[state]
        if seconds <= 0:
            continue
        id = f"batch_wait.{state}"
        inner = tuple(
            window.account(f"{id}.{group}", GROUP_LABELS.get(group, group), seconds * share)
            for group, share in groups.get(state, {}).items()
        )
        children.append(
            Account(
                id,
                label,
                seconds,
                window.share(seconds),
                inner,
                top_lines(lines.get(state, {}), seconds),
                batch_wait.NO_SCHED if state == batch_wait.UNDIVIDED else None,
            )
        )
    return _largest_first(children)


def _own_input(window: Window, rows: Ints) -> tuple[Account, ...]:
    """Input that no DataLoader makes, by what the training thread or the makers it waits for do."""
    training, samples = window.training, window.charged.samples
    inside = (samples.time_ns >= window.begin_ns) & (samples.time_ns < window.end_ns)
    ready = float(samples.weight[inside & (samples.state == RUNNING)].sum())
    every = float(samples.weight[inside].sum())
    queued = (window.queued_share or 0.0) * every / ready if ready else 0.0
    return input_accounts(
        window.account,
        float(_lengths(window, rows).sum()) / 1e9,
        samples.take(inside & np.isin(window.charged.sample_piece, rows)),
        maker_samples(training, window.begin_ns, window.end_ns),
        min(queued, 1.0),
        GROUP_LABELS,
    )


def _lines_of_sampler(window: Window) -> dict[Line, float]:
    """Lines on which the stack samples met the sampler."""
    samples, chosen = window.charged.samples, window.training.kind(kinds.SAMPLING)
    inside = (samples.time_ns >= window.begin_ns) & (samples.time_ns < window.end_ns)
    inside &= intervals(chosen["start"], ends(chosen)).at(samples.time_ns) >= 0
    return weigh_lines(samples.take(inside))


def _host_other(window: Window, rows: Ints, imports_s: float) -> tuple[tuple[Account, ...], tuple[Line, ...]]:
    """Other code by its hottest lines: the samples of each kind of gap share out that kind's time."""
    charged = window.charged
    in_rows = np.isin(charged.sample_piece, rows)
    in_gaps = charged.samples.take(in_rows)
    groups, of_sample = charged.gaps.group[rows], charged.gaps.group[charged.sample_piece[in_rows]]
    seconds: dict[Line, float] = {}
    named = 0.0
    lengths = _lengths(window, rows) / 1e9
    for group in np.unique(of_sample).tolist():
        weights = weigh_lines(in_gaps.take(of_sample == group))
        total = sum(weights.values())
        share = float(lengths[groups == group].sum())
        for line, weight in weights.items() if total else ():
            seconds[line] = seconds.get(line, 0.0) + share * weight / total
            named += share * weight / total
    lines = top_lines(seconds, named)
    children = [
        Account(
            f"host_other.{PurePath(line.file).name}:{line.line}",
            f"{PurePath(line.file).name}:{line.line} {line.source or line.function}".strip(),
            line.seconds,
            window.share(line.seconds),
            (),
            (line,),
        )
        for line in lines
    ]
    if imports_s:
        children.append(window.account("host_other.imports", "imports", imports_s))
    unseen: dict[tuple[str, str], float] = {}
    for group in np.setdiff1d(groups, of_sample).tolist():
        before, after = (_account_of(kind) for kind in charged.gaps.pairs[group])
        unseen[before, after] = unseen.get((before, after), 0.0) + float(lengths[groups == group].sum())
    for (before, after), amount in unseen.items():
        label = f"never sampled, between {LABELS.get(before, 'other code')} and {LABELS.get(after, 'other code')}"
        children.append(window.account(f"host_other.between_{before}_and_{after}", label, amount))
    rest = float(lengths.sum()) - sum(child.seconds for child in children if child.id != "host_other.imports")
    if children and rest > 1e-9:
        children.append(window.account("host_other.rest", "other lines", rest))
    return _largest_first(children), lines


def _account_of(kind: int) -> str:
    """The account that spans of this kind belong to; ``other`` where they have none."""
    code = ACCOUNT_OF_KIND.get(kind, IMPORTS)
    return ACCOUNTS[code] if code < len(ACCOUNTS) else "other"


def _sites(window: Window, rows: Ints, seconds: float) -> tuple[Line, ...]:
    """Lines of code that the events themselves name, with measured time."""
    owner = window.charged.spans[window.charged.pieces.owner[rows]]
    known = np.isin(owner["kind"], (kinds.BLOCKING_READ, kinds.H2D))
    lengths = _lengths(window, rows)
    names = window.training.process.names
    lines = []
    for id in np.unique(owner["arg"][known]).tolist():
        site = names.get(id, "site")
        if site:
            site_s = float(lengths[known & (owner["arg"] == id)].sum()) / 1e9
            function, source = str(site.get("function", "")), str(site.get("source", ""))
            lines.append(Line(str(site.get("file")), int(site.get("line", 0)), function, source, site_s))
    return tuple(sorted(lines, key=lambda line: -line.seconds)[:TOP_LINES])


def _by_name(window: Window, rows: Ints, account: str) -> tuple[Account, ...]:
    """Children by what the outermost event calls itself: a sink, a path."""
    pieces, spans, names = window.charged.pieces, window.charged.spans, window.training.process.names
    owned = charged_to(window.charged.kind()[rows], account)
    after, rows = rows[~owned], rows[owned]
    lengths = _lengths(window, rows)
    arg = spans["arg"][pieces.owner[rows]]
    children = []
    if len(after):
        children.append(
            window.account(
                f"{account}.{WITHOUT_EVENT[account][0]}", WITHOUT_EVENT[account][1], _lengths(window, after).sum() / 1e9
            )
        )
    for id in np.unique(arg).tolist():
        name = names.text(id, "unknown")
        seconds = float(lengths[arg == id].sum()) / 1e9
        children.append(window.account(f"{account}.{name}", name, seconds))
    if len(children) > TOP_LINES:
        children = list(_largest_first(children))
        rest = sum(child.seconds for child in children[TOP_LINES:])
        label = f"{len(children) - TOP_LINES} others"
        children = [*children[:TOP_LINES], window.account(f"{account}.rest", label, rest)]
    return _largest_first(children)


def _checkpoint_note(window: Window) -> str | None:
    """A note: the number and size of the checkpoints written inside the interval."""
    spans = window.training.kind(kinds.CHECKPOINT)
    writes, outer = (
        found[(found["start"] >= window.begin_ns) & (found["start"] < window.end_ns)]
        for found in (spans, outermost(spans))
    )
    size = int(writes["a"].sum())
    return f"{len(outer)} written, {units.size(size) if size else 'size not measured'}"


def outermost(spans: Events) -> Events:
    """The spans that lie in no other one, in order of start: a framework's own lies around the write that it makes."""
    spans = spans[np.lexsort((-spans["duration"].astype(np.int64), spans["start"]))]
    before = np.maximum.accumulate(ends(spans))[:-1]
    return np.asarray(spans[np.concatenate(([True], spans["start"][1:] >= before))[: len(spans)]])


def _boundaries(window: Window, rows: Ints) -> tuple[Account, ...]:
    """Epoch boundaries by what was done there."""
    pieces, spans = window.charged.pieces, window.charged.spans
    kind = spans["kind"][pieces.owner[rows]]
    lengths = _lengths(window, rows)
    children = []
    for event, (name, label) in BOUNDARY_CHILDREN.items():
        seconds = float(lengths[kind == event].sum()) / 1e9
        if not seconds:
            continue
        account = window.account(f"epoch_boundary.{name}", label, seconds)
        children += _epoch_start(window, rows[kind == event], account) if event == kinds.ITER_START else [account]
    return _largest_first(children)


def _epoch_start(window: Window, rows: Ints, whole: Account) -> list[Account]:
    """The start of epochs, divided by stack samples into starting processes and the rest, with the rest's lines."""
    samples = window.charged.samples.take(np.isin(window.charged.sample_piece, rows))
    launching = np.array([_launches(samples.names, stack) for stack in samples.stack.tolist()], bool)
    total = float(samples.weight.sum())
    if total > 0:
        part = float(samples.weight[launching].sum()) / total
    else:
        teams = window.side.teams if window.side else ()
        part = float(any(window.begin_ns <= team.begin_ns < window.end_ns for team in teams))
    own_s = whole.seconds * (1.0 - part)
    lines = top_lines(weigh_lines(samples.take(~launching)), own_s)
    own = replace(window.account(whole.id, whole.label, own_s), lines=lines)
    launch = window.account(f"epoch_boundary.{LAUNCH[0]}", LAUNCH[1], whole.seconds * part)
    return [account for account in (own, launch) if account.seconds > 0]


def _launches(names: Names, stack: int) -> bool:
    """True if a stack inside ``iter(loader)`` starts processes, or makes the queues to them."""
    # A training process that was itself started by multiprocessing has that further out.
    for place, frame in enumerate(frames_of(names, stack)):
        if _LAUNCHING.search(str(frame[0])):
            return True
        if frame[4] or _LOADER.search(str(frame[0])):
            return place == 0 and not frame[4]
    return False


def _largest_first(children: list[Account]) -> tuple[Account, ...]:
    return tuple(sorted(children, key=lambda account: -account.seconds))


# How the lines and the children of an account are found.
_LINES: dict[str, Callable[[Window, Ints, float], tuple[Line, ...]]] = {
    "batch_wait": _waited_lines,
    "device_sync": _sites,
    "h2d": _sites,
    **dict.fromkeys(
        ("forward", "loss", "backward", "optimizer", "checkpoint", "validation", "logging", "epoch_boundary"), _sampled
    ),
}
_CHILDREN: dict[str, Callable[[Window, Ints], tuple[Account, ...]]] = {
    "batch_wait": _batch_wait,
    "logging": functools.partial(_by_name, account="logging"),
    "checkpoint": functools.partial(_by_name, account="checkpoint"),
    "epoch_boundary": _boundaries,
}


def code_seconds(window: Window) -> tuple[dict[str, float], float, float]:
    """Seconds by account inside the interval (imports in host_other), of imports alone, and unaccounted."""
    seconds = window.charged.seconds(window.begin_ns, window.end_ns)
    imports = float(seconds[IMPORTS])
    by_id = {id: float(seconds[code]) + (imports if id == "host_other" else 0.0) for id, code in CODE.items()}
    return by_id, imports, float(seconds[UNACCOUNTED])
