"""Pieces of the training thread's time, cut in two by what the stack samples in them show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.measure.samples import Samples
from flatout.measure.timeline import Flags, Ints, Pieces


@dataclass(frozen=True)
class Divided:
    """Pieces of which those that hold what is looked for are cut in two."""

    pieces: Pieces
    before: Ints  # row of the piece each was cut from
    found: Flags  # the pieces that hold it
    sample_piece: Ints  # piece of each sample; -1 outside


def divide(pieces: Pieces, candidates: Flags, kind: Ints, samples: Samples, piece: Ints, shows: Flags) -> Divided:
    """Cut candidate pieces: the samples in the pieces of one kind stand for all of its time.

    Args:
        pieces: of the training thread.
        candidates: those that may be cut.
        kind: of each piece, any number.
        samples: stack samples of the thread.
        piece: of each sample; -1 outside.
        shows: samples that show what is looked for.
    """
    shows = shows & (piece >= 0) & (candidates[piece] if len(candidates) else False)
    part = np.zeros(len(pieces))
    for each in np.unique(kind[piece[shows]]).tolist():
        met = (piece >= 0) & (kind[piece] == each)
        part[candidates & (kind == each)] = samples.weight[met & shows].sum() / samples.weight[met].sum()
    cut = pieces.start + np.round(part * pieces.length).astype(np.int64)
    first, second = np.flatnonzero(cut > pieces.start), np.flatnonzero(cut < pieces.end)
    # The part that was found is placed first: its length within a gap is known, its position is not.
    before = np.concatenate([first, second])
    order = np.lexsort((np.arange(len(before)) >= len(first), before))
    flags = (np.arange(len(before)) < len(first))[order]
    before = before[order]
    start = np.where(flags, pieces.start[before], cut[before])
    end = np.where(flags, cut[before], pieces.end[before])
    row = np.full((len(pieces), 2), -1, np.int64)
    row[before, flags.astype(np.int64)] = np.arange(len(before))
    wanted = np.where(piece >= 0, row[piece, shows.astype(np.int64)], -1) if len(pieces) else piece
    other = np.where(piece >= 0, row[piece, 1 - shows.astype(np.int64)], -1) if len(pieces) else piece
    return Divided(Pieces(start, end, pieces.owner[before]), before, flags, np.where(wanted >= 0, wanted, other))
