"""Gaps between the recorded spans: what they are by their place in a step, and by the code sampled in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from flatout.measure.account_ids import CODE, UNACCOUNTED
from flatout.measure.divided import divide
from flatout.measure.gap_code import instead_of_loss, instead_of_other
from flatout.measure.samples import Samples, frames_of, source_of
from flatout.measure.thresholds import DOMINANT_SHARE
from flatout.measure.timeline import GAP, Flags, Ints, Pieces
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.record import Events, ends

# Spans that show where in a step a gap lies.
MARKS = (kinds.BATCH_WAIT, kinds.FORWARD, kinds.BACKWARD, kinds.VALIDATION, kinds.CHECKPOINT)
_MOVING = re.compile(r"\b(replace|rename|renames|move|copy\w*|link|symlink_to|symlink|fsync|unlink|rmtree)\(")
# A gap that is so many times as long as usual, and as rare, holds more than what each step does in it.
_FAR_LONGER = 8
SHORT_GAP_NS = 20_000  # as short as what the probe itself may cost between two spans


@dataclass(frozen=True)
class Gaps:
    """Between which kinds of spans each piece lies: pieces of one group lie between the same two."""

    group: Ints  # of each piece: a place in ``pairs``
    pairs: tuple[tuple[int, int], ...]  # event kinds before and after; 0 for none
    unusual: int | None = None  # the first group of unusually long ones; None: they are not set apart

    def take(self, rows: Ints) -> Gaps:
        return Gaps(self.group[rows], self.pairs, self.unusual)

    def unusually_long(self) -> Flags:
        """Pieces of a gap that the loop has once in a while, such as at the beginning of an epoch."""
        return np.zeros(len(self.group), bool) if self.unusual is None else self.group >= self.unusual

    def apart(self, pieces: Pieces, among: Flags) -> Gaps:
        """The same, with groups of their own for the pieces among these that are unusually long."""
        long = np.zeros(len(self.group), bool)
        after = np.array([after for _, after in self.pairs], np.int64)[self.group]
        for kind in np.unique(after[among]).tolist():
            mine = among & (after == kind)  # whatever comes before: a line of a log may come before each epoch
            longer = mine & (pieces.length > _FAR_LONGER * np.median(pieces.length[mine]))
            if _FAR_LONGER * np.count_nonzero(longer) <= np.count_nonzero(mine):
                long |= longer
        return Gaps(self.group + len(self.pairs) * long, 2 * self.pairs, len(self.pairs))

    def follow(self, kind: int) -> Flags:
        """Pieces that come right after a span of this kind."""
        return np.array([before == kind for before, _ in self.pairs], bool)[self.group]

    def precede(self, kind: int) -> Flags:
        """Pieces that come right before a span of this kind."""
        return np.array([after == kind for _, after in self.pairs], bool)[self.group]


def between(kind: Ints) -> Gaps:
    """The kinds of the spans before and after each piece; 0 for a gap or an end."""
    if not len(kind):
        return Gaps(np.zeros(0, np.int64), ())
    pairs = np.stack([np.append(0, kind[:-1]), np.append(kind[1:], 0)], axis=1)
    unique, group = np.unique(pairs, axis=0, return_inverse=True)
    return Gaps(np.asarray(group, np.int64).reshape(-1), tuple((int(a), int(b)) for a, b in unique))


def name_gaps(training: Training, pieces: Pieces, spans: Events, kind: Ints, account: Ints) -> tuple[Ints, list[str]]:
    """Find the loss, and without forward events the forward pass, by where a gap lies in its step.

    A closure runs the step's work inside the optimizer call: what comes in it before that work
    is no optimizer's time, and is taken for a gap too.
    """
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
    arrives = np.any(in_window & np.isin(kind, (kinds.BATCH_WAIT, kinds.H2D)))
    if blind and arrives:
        rules.append((gap | closure, (kinds.BATCH_WAIT, kinds.H2D), kinds.BACKWARD, "forward"))
    for candidates, come_before, comes_after, id in rules:
        found = candidates & np.isin(kind_before, come_before) & (kind_after == comes_after)
        account = np.where(found, CODE[id], account)
    if not blind:
        return account, []
    if arrives:
        said = "the forward pass was not seen: the time from a batch's arrival to its backward pass is taken for it"
        return account, [said]
    # Functions instead of modules, on data that is there: what else the loop does is found by its code, as in a loss.
    before, after = _neighbours(np.isin(kind, (kinds.OPTIMIZER, kinds.BACKWARD, kinds.VALIDATION, kinds.CHECKPOINT)))
    after_step = (before >= 0) & (kind[before] == kinds.OPTIMIZER) & (after >= 0) & (kind[after] == kinds.BACKWARD)
    said = "the forward pass was not seen: the time from an optimizer's step to the next backward pass is the loss"
    return np.where(gap & after_step, CODE["loss"], account), [said]


def _neighbours(marked: Flags) -> tuple[Ints, Ints]:
    """Row of the nearest marked piece before and after each piece; -1 if there is no such piece."""
    rows = np.arange(len(marked))
    before = np.maximum.accumulate(np.where(marked, rows, -1))
    after = np.minimum.accumulate(np.where(marked, rows, len(marked))[::-1])[::-1]
    return before, np.where(after < len(marked), after, -1)


def charge_by_code(pieces: Pieces, account: Ints, gaps: Gaps, samples: Samples) -> tuple[Pieces, Ints, Ints, Ints]:
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


def with_renaming(pieces: Pieces, account: Ints, gaps: Gaps, samples: Samples) -> Ints:
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


def without_short_gaps(pieces: Pieces, account: Ints) -> tuple[Pieces, Ints]:
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
