"""Charge each moment of the training thread to one account."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from flatout.measure.device_time import charge_device, device_busy
from flatout.measure.divided import divide
from flatout.measure.gap_code import instead_of_loss, instead_of_other
from flatout.measure.own_input import divide_input
from flatout.measure.samples import Samples, frames_of, source_of, stack_samples
from flatout.measure.thresholds import DOMINANT_SHARE
from flatout.measure.timeline import GAP, Flags, Floats, Ints, Pieces, exclusive_pieces
from flatout.measure.training import Training
from flatout.measure.validation import validation_regions
from flatout.measure.worker_records import WorkerGroup
from flatout.probe import events as kinds
from flatout.record import Events, ends
from flatout.record.packed_fields import batch_worker

# Accounts in which the training step itself is computed.
COMPUTE_ACCOUNTS = ("forward", "loss", "backward", "optimizer", "collective")
# Top-level accounts of the ledger: id -> label.
LABELS = {
    "batch_wait": "waiting for batches",
    "h2d": "copying batches to the device",
    "forward": "forward pass",
    "loss": "loss",
    "backward": "backward pass",
    "optimizer": "optimizer",
    "device_sync": "waiting for the device",
    "checkpoint": "checkpoints",
    "validation": "validation",
    "logging": "logs and metrics",
    "epoch_boundary": "epoch boundaries",
    "compile": "compiling",
    "collective": "communication between ranks",
    "host_other": "other code in the training process",
}
# Accounts in which the training step itself is computed.
COMPUTE_ACCOUNTS = ("forward", "loss", "backward", "optimizer", "collective")
ACCOUNTS = tuple(LABELS)
CODE = {id: code for code, id in enumerate(ACCOUNTS)}
# Codes beyond the accounts: pieces that end up in host_other or in the remainder.
IMPORTS = len(ACCOUNTS)
UNACCOUNTED = IMPORTS + 1

ACCOUNT_OF_KIND = {
    kinds.BATCH_WAIT: CODE["batch_wait"],
    kinds.H2D: CODE["h2d"],
    kinds.FORWARD: CODE["forward"],
    kinds.BACKWARD: CODE["backward"],
    kinds.OPTIMIZER: CODE["optimizer"],
    kinds.ZERO_GRAD: CODE["optimizer"],
    kinds.BLOCKING_READ: CODE["device_sync"],
    kinds.CHECKPOINT: CODE["checkpoint"],
    kinds.VALIDATION: CODE["validation"],
    kinds.LOG: CODE["logging"],
    kinds.ITER_START: CODE["epoch_boundary"],
    kinds.ITER_END: CODE["epoch_boundary"],
    kinds.WORKER_START: CODE["epoch_boundary"],  # the part of a wait in which new workers were not ready yet
    kinds.COMPILE: CODE["compile"],
    kinds.COLLECTIVE: CODE["collective"],
    kinds.IMPORT: IMPORTS,
}
LOADER_KINDS = (kinds.BATCH_WAIT, kinds.ITER_START, kinds.ITER_END)
# Time inside these belongs to them, except checkpoints that a framework writes inside its validation.
ABSORBING = (kinds.VALIDATION, kinds.CHECKPOINT, kinds.LOG)
# Spans that show where in a step a gap lies.
MARKS = (kinds.BATCH_WAIT, kinds.FORWARD, kinds.BACKWARD, kinds.VALIDATION, kinds.CHECKPOINT)
_MOVING = re.compile(r"\b(replace|rename|renames|move|copy\w*|link|symlink_to|symlink|fsync|unlink|rmtree)\(")
SHORT_GAP_NS = 20_000  # as short as what the probe itself may cost between two spans


@dataclass(frozen=True)
class Gaps:
    """Between which kinds of spans each piece lies: pieces of one group lie between the same two."""

    group: Ints  # of each piece: a place in ``pairs``
    pairs: tuple[tuple[int, int], ...]  # event kinds before and after; 0 for none

    def take(self, rows: Ints) -> Gaps:
        return Gaps(self.group[rows], self.pairs)

    def follow(self, kind: int) -> Flags:
        """Pieces that come right after a span of this kind."""
        return np.array([before == kind for before, _ in self.pairs], bool)[self.group]

    def precede(self, kind: int) -> Flags:
        """Pieces that come right before a span of this kind."""
        return np.array([after == kind for _, after in self.pairs], bool)[self.group]


@dataclass(frozen=True)
class Charged:
    """The training thread from process start to the end of the record; one entry a piece."""

    pieces: Pieces  # ``owner``: row in ``spans``, or GAP
    account: Ints  # code of the account
    spans: Events
    samples: Samples  # stack samples of the training thread
    sample_piece: Ints  # piece in which each sample fell; -1 outside
    device: Flags  # pieces in which the device worked
    gaps: Gaps
    notes: tuple[str, ...]

    def rows(self, account: str, begin: int, finish: int) -> Ints:
        """Pieces of one account inside [begin, finish); the edges must be edges of pieces or are cut off."""
        inside = (self.pieces.end > begin) & (self.pieces.start < finish) & (self.account == CODE[account])
        return np.flatnonzero(inside)

    def seconds(self, begin: int, finish: int) -> Floats:
        """Seconds of each code inside [begin, finish)."""
        length = np.minimum(self.pieces.end, finish) - np.maximum(self.pieces.start, begin)
        return np.bincount(self.account, np.maximum(length, 0), minlength=UNACCOUNTED + 1) / 1e9

    def kind(self) -> Ints:
        """Event kind that owns each piece; 0 for gaps."""
        return _kind(self.pieces, self.spans)


def charged_to(kind: Ints, account: str) -> Flags:
    """Pieces whose own event kind belongs to an account."""
    return np.isin(kind, [each for each, code in ACCOUNT_OF_KIND.items() if code == CODE[account]])


def charge(training: Training, teams: tuple[WorkerGroup, ...]) -> Charged:
    """Cut the training thread's time into pieces, and charge each to one account."""
    spans, account_of_span = _spans(training, teams)
    pieces = exclusive_pieces(
        spans["start"].astype(np.int64),
        ends(spans),
        training.begin_ns,
        training.finish_ns,
        absorbs=np.isin(spans["kind"], ABSORBING),
        escapes=spans["kind"] == kinds.CHECKPOINT,
    )
    account = np.where(pieces.owner == GAP, CODE["host_other"], account_of_span[pieces.owner] if len(spans) else 0)
    account, notes = _name_gaps(training, pieces, spans, account)
    gaps = _gaps(_kind(pieces, spans))
    samples = stack_samples(training.events, training.process.names)
    account = _with_renaming(pieces, account, gaps, samples)
    pieces, account = _without_short_gaps(pieces, account)
    if not len(samples):
        notes.append("no stack samples were recorded: code between the measured calls could not be named")
    busy = device_busy(training.process.events)
    device = np.zeros(len(pieces), bool)
    if len(busy):
        undivided = pieces
        pieces, account, device = charge_device(pieces, account, busy, ACCOUNT_OF_KIND, account == CODE["validation"])
        gaps = gaps.take(undivided.at(pieces.start))
        notes.append("device time is charged to its phase, so the host's accounts hold only time with an idle device")
    pieces, account, before, sample_piece = _by_code(pieces, account, gaps, samples)
    device, gaps = device[before], gaps.take(before)
    if training.loader is None:
        divided = divide_input(
            pieces,
            np.isin(account, (CODE["host_other"], CODE["loss"])),
            np.isin(_kind(pieces, spans), (kinds.FORWARD, kinds.BACKWARD, kinds.OPTIMIZER)),
            gaps.precede(kinds.FORWARD),
            account,
            gaps.group,
            samples,
            sample_piece,
        )
        account = np.where(divided.found, CODE["batch_wait"], account[divided.before])
        pieces, sample_piece = divided.pieces, divided.sample_piece
        device, gaps = device[divided.before], gaps.take(divided.before)
        if divided.found.any():
            notes.append(
                "no DataLoader was seen: waiting for batches is what the stack samples show of making or awaiting them"
            )
    return Charged(pieces, account, spans, samples, sample_piece, device, gaps, tuple(notes))


def _spans(training: Training, teams: tuple[WorkerGroup, ...]) -> tuple[Events, Ints]:
    """All spans that own time, with those that follow from others, and the account of each."""
    recorded = training.events[np.isin(training.events["kind"], tuple(ACCOUNT_OF_KIND))]
    recorded = recorded[recorded["kind"] != kinds.WORKER_START]
    regions = validation_regions(training)
    starting = _until_ready(training, teams)
    derived = np.zeros(len(regions) + len(starting), recorded.dtype)
    derived["start"] = np.concatenate([starting.start, regions.start])
    derived["duration"] = np.concatenate([starting.length, regions.length])
    derived["kind"] = np.repeat([kinds.WORKER_START, kinds.VALIDATION], [len(starting), len(regions)])
    # Of spans with equal edges the later row is the outer one: a region contains the spans it was derived from,
    # a wait contains the start of its workers.
    spans = np.concatenate([derived[: len(starting)], recorded, derived[len(starting) :]])
    account = np.array([ACCOUNT_OF_KIND[int(kind)] for kind in spans["kind"]], np.int64)
    foreign = np.isin(spans["kind"], LOADER_KINDS) & ~np.isin(spans["arg"], training.loaders)
    account[foreign] = CODE["validation"]
    return spans, account


def _until_ready(training: Training, teams: tuple[WorkerGroup, ...]) -> Pieces:
    """The part of each later epoch's first wait in which the worker waited for was still starting."""
    waits = training.kind(kinds.BATCH_WAIT)
    waits = waits[waits["arg"] == training.loader]
    begin, finish = [], []
    for team in teams:
        first = waits[np.searchsorted(waits["start"], team.begin_ns) :][:1]
        if not len(first) or first["start"][0] <= waits["start"][0]:
            continue  # the first epoch's belongs to the start-up
        ready = {
            id: int(ends(starts).max())
            for id, member in enumerate(team.members)
            if member is not None and len(starts := member.of_kinds(kinds.WORKER_START))
        }
        worker = int(batch_worker(first)[0])
        until = ready.get(worker, max(ready.values(), default=0))
        begin.append(int(first["start"][0]))
        finish.append(min(until, int(ends(first)[0])))
    kept = [row for row in range(len(begin)) if finish[row] > begin[row]]
    start, end = np.array(begin, np.int64)[kept], np.array(finish, np.int64)[kept]
    return Pieces(start, end, np.arange(len(start)))


def _kind(pieces: Pieces, spans: Events) -> Ints:
    if not len(spans):
        return np.zeros(len(pieces), np.int64)
    return np.where(pieces.owner == GAP, 0, spans["kind"][pieces.owner]).astype(np.int64)


def _name_gaps(training: Training, pieces: Pieces, spans: Events, account: Ints) -> tuple[Ints, list[str]]:
    """Find the loss, and without forward events the forward pass, by where a gap lies in its step.

    A closure runs the step's work inside the optimizer call: what comes in it before that work
    is no optimizer's time, and is taken for a gap too.
    """
    kind = _kind(pieces, spans)
    in_window = (pieces.start >= training.window_begin_ns) & (pieces.end <= training.window_end_ns)
    blind = bool(np.any(in_window & (kind == kinds.BACKWARD)) and not np.any(in_window & (kind == kinds.FORWARD)))
    before, after = _neighbours(np.isin(kind, (*MARKS, kinds.H2D) if blind else MARKS))
    kind_before = np.where(before >= 0, kind[before], 0)
    kind_after = np.where(after >= 0, kind[after], 0)
    gap = kind == 0
    optimizer = np.flatnonzero((kind == kinds.OPTIMIZER) & (after >= 0))
    own = pieces.owner[optimizer]
    holds_next = pieces.end[after[optimizer]] <= ends(spans)[own]
    begins_inside = (before[optimizer] >= 0) & (pieces.start[before[optimizer]] >= spans["start"][own])
    closure = np.zeros(len(pieces), bool)
    closure[optimizer[holds_next & ~begins_inside]] = True
    inner = np.zeros(len(pieces), bool)
    inner[optimizer[holds_next]] = True
    account = np.where(closure, CODE["host_other"], account)
    # Candidates, the kinds of span that come before and after them, and the account they then belong to.
    rules: list[tuple[Flags, tuple[int, ...], int, str]] = [(gap | inner, (kinds.FORWARD,), kinds.BACKWARD, "loss")]
    if blind:
        rules.append((gap | closure, (kinds.BATCH_WAIT, kinds.H2D), kinds.BACKWARD, "forward"))
    for candidates, come_before, comes_after, id in rules:
        found = candidates & np.isin(kind_before, come_before) & (kind_after == comes_after)
        account = np.where(found, CODE[id], account)
    said = "the forward pass was not seen: the time from a batch's arrival to its backward pass is taken for it"
    return account, [said] if blind else []


def _by_code(pieces: Pieces, account: Ints, gaps: Gaps, samples: Samples) -> tuple[Pieces, Ints, Ints, Ints]:
    """Charge gaps to the account that the code which was sampled in them belongs to.

    Returns:
        The pieces, their accounts, the row of the piece that each was cut from, and the piece of each sample.
    """
    before, sample_piece = np.arange(len(pieces)), pieces.at(samples.time_ns)
    for source, instead in (("loss", instead_of_loss), ("host_other", instead_of_other)):
        shown = {int(id): instead(frames_of(samples.names, int(id))) for id in np.unique(samples.stack)}
        for id in sorted({id for id in shown.values() if id is not None}):
            shows = np.array([shown[stack] == id for stack in samples.stack.tolist()], bool)
            kind = gaps.group[before] * (UNACCOUNTED + 1) + account
            divided = divide(pieces, account == CODE[source], kind, samples, sample_piece, shows)
            account = np.where(divided.found, CODE[id], account[divided.before])
            pieces, before, sample_piece = divided.pieces, before[divided.before], divided.sample_piece
    return pieces, account, before, sample_piece


def _neighbours(marked: Flags) -> tuple[Ints, Ints]:
    """Row of the nearest marked piece before and after each piece; -1 if there is no such piece."""
    rows = np.arange(len(marked))
    before = np.maximum.accumulate(np.where(marked, rows, -1))
    after = np.minimum.accumulate(np.where(marked, rows, len(marked))[::-1])[::-1]
    return before, np.where(after < len(marked), after, -1)


def _gaps(kind: Ints) -> Gaps:
    """The kinds of the spans before and after each piece; 0 for a gap or an end."""
    if not len(kind):
        return Gaps(np.zeros(0, np.int64), ())
    pairs = np.stack([np.append(0, kind[:-1]), np.append(kind[1:], 0)], axis=1)
    unique, group = np.unique(pairs, axis=0, return_inverse=True)
    return Gaps(np.asarray(group, np.int64).reshape(-1), tuple((int(a), int(b)) for a, b in unique))


def _with_renaming(pieces: Pieces, account: Ints, gaps: Gaps, samples: Samples) -> Ints:
    """Charge to the checkpoint what is done with its file right after it was written: renamed, copied, made durable."""
    after = (account == CODE["host_other"]) & gaps.follow(kinds.CHECKPOINT)
    piece = pieces.at(samples.time_ns)
    inside = (piece >= 0) & after[piece]
    for group in np.unique(gaps.group[after]).tolist():
        met = samples.take(inside & (gaps.group[piece] == group))
        moving = np.array([bool(_MOVING.search(source_of(met.names, stack))) for stack in met.stack.tolist()], bool)
        if len(met) and float(met.weight[moving].sum()) >= DOMINANT_SHARE * float(met.weight.sum()):
            account = np.where(after & (gaps.group == group), CODE["checkpoint"], account)
    return account


def _without_short_gaps(pieces: Pieces, account: Ints) -> tuple[Pieces, Ints]:
    """Take very short gaps out of host_other, since they may be the probe's own time.

    Longer ones that no sample ever hit stay: the sampler needs the interpreter's lock, which pure Python gives away
    only every 5 ms, so that it meets shorter pieces of code at their end. Where they lie is known.
    """
    other = account == CODE["host_other"]
    short = other & (pieces.length < SHORT_GAP_NS)
    # What lies between two lines of a log is the writing of logs too.
    between = np.append(-1, account[:-1]) == np.append(account[1:], -2)
    touching = (np.append(0, pieces.end[:-1]) == pieces.start) & (pieces.end == np.append(pieces.start[1:], 0))
    same = short & between & touching & ~np.isin(np.append(-1, account[:-1]), (CODE["host_other"], UNACCOUNTED))
    account = np.where(same, np.append(-1, account[:-1]), account)
    owner = np.where(same, np.append(GAP, pieces.owner[:-1]), pieces.owner)  # the account's children find them there
    return Pieces(pieces.start, pieces.end, owner), np.where(short & ~same, UNACCOUNTED, account)
