"""Charge each moment of the training thread to one account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flatout.measure import gaps as gap_rules
from flatout.measure.account_ids import ACCOUNT_OF_KIND, CODE, UNACCOUNTED
from flatout.measure.device_time import charge_device, device_busy
from flatout.measure.forward_calls import loss_calls
from flatout.measure.gaps import Gaps
from flatout.measure.model_code import divide_model_code
from flatout.measure.own_input import divide_input
from flatout.measure.samples import RUNNING, Samples, stack_samples
from flatout.measure.timeline import GAP, Flags, Floats, Ints, Pieces, exclusive_pieces
from flatout.measure.training import Training
from flatout.measure.validation import validation_regions
from flatout.measure.worker_records import WorkerGroup
from flatout.probe import events as kinds
from flatout.record import Events, ends
from flatout.record.packed_fields import batch_worker

LOADER_KINDS = (kinds.BATCH_WAIT, kinds.ITER_START, kinds.ITER_END)
# Time inside these belongs to them, except checkpoints that a framework writes inside its validation.
ABSORBING = (kinds.VALIDATION, kinds.CHECKPOINT, kinds.LOG)


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

    def blocked_share(self, accounts: Sequence[str], begin: int, finish: int) -> float:
        """Share of the time in some accounts in which stack samples met the thread blocked; 0 without such samples."""
        inside = (self.samples.time_ns >= begin) & (self.samples.time_ns < finish)
        rows = np.flatnonzero(inside & (self.samples.state > 0) & (self.sample_piece >= 0))
        rows = rows[np.isin(self.account[self.sample_piece[rows]], [CODE[id] for id in accounts])]
        weight, blocked = self.samples.weight[rows], self.samples.state[rows] != RUNNING
        return float(weight[blocked].sum() / weight.sum()) if weight.sum() > 0 else 0.0

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
    kind = _kind(pieces, spans)
    account, notes = gap_rules.name_gaps(training, pieces, spans, kind, account)
    gaps = gap_rules.between(kind)
    inside = (pieces.start >= training.window_begin_ns) & (pieces.end <= training.window_end_ns)
    if training.loader is None and not np.any(inside & (kind == kinds.FORWARD)):
        gaps = gaps.apart(pieces, (kind == 0) & (account == CODE["loss"]))
    samples = stack_samples(training.events, training.process.names)
    account = gap_rules.with_renaming(pieces, account, gaps, samples)
    pieces, account = gap_rules.without_short_gaps(pieces, account)
    if not len(samples):
        notes.append("no stack samples were recorded: code between the measured calls could not be named")
    busy = device_busy(training.process.events)
    device = np.zeros(len(pieces), bool)
    if len(busy):
        undivided = pieces
        pieces, account, device = charge_device(pieces, account, busy, ACCOUNT_OF_KIND, account == CODE["validation"])
        gaps = gaps.take(undivided.at(pieces.start))
        notes.append("device time is charged to its phase, so the host's accounts hold only time with an idle device")
    pieces, account, before, sample_piece = gap_rules.charge_by_code(pieces, account, gaps, samples)
    device, gaps = device[before], gaps.take(before)
    if training.loader is None:
        divided = divide_input(
            pieces,
            np.isin(account, (CODE["host_other"], CODE["loss"])),
            np.isin(_kind(pieces, spans), (kinds.FORWARD, kinds.BACKWARD, kinds.OPTIMIZER)),
            gaps.precede(kinds.FORWARD) | gaps.unusually_long(),
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
                "no DataLoader fed the steps: waiting for batches is what stack samples show of making or awaiting them"
            )
    model = divide_model_code(
        pieces,
        account == CODE["host_other"],
        np.isin(_kind(pieces, spans), (kinds.BACKWARD, kinds.OPTIMIZER)),
        gaps.group * (UNACCOUNTED + 1) + account,
        samples,
        sample_piece,
        training.process.info,
    )
    if model.found.any():
        account = np.where(model.found, CODE["forward"], account[model.before])
        pieces, sample_piece = model.pieces, model.sample_piece
        device, gaps = device[model.before], gaps.take(model.before)
        notes.append(
            "the forward pass holds what stack samples show of functions that compute with gradients outside of modules"
        )
    in_loss = np.append(loss_calls(spans, training.process.names), False)[pieces.owner]  # GAP is -1
    account = np.where(in_loss & ~device & (account == CODE["forward"]), CODE["loss"], account)
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
    foreign = np.isin(spans["kind"], LOADER_KINDS) & np.isin(spans["arg"], training.other_loaders)
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
