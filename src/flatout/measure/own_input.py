"""Input without a DataLoader: the part of the time between a step's measured calls that is spent on batches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.measure.functions import function_group
from flatout.measure.samples import Samples, frames_of
from flatout.measure.timeline import Flags, Ints, Pieces

# Common names of functions that return a batch: batchgenerators, nanoGPT, Keras, fairseq, tensor2tensor, ...
_FUNCTION = re.compile(
    r"(^|[._])((get|next|load|make|sample|fetch|build|create|draw|prepare|generate)_?(next_?)?(mini_?)?"
    r"(batch(es)?|items?|samples?|data|example)|pre_?fetch\w*|collate\w*|__next__|__getitem__)$",
    re.IGNORECASE,
)
_SOURCE = re.compile(
    r"\bnext\(|\b(get|next|load|make|sample|fetch|draw)_?(mini_?)?(batch|data)\w*\(|"
    r"\bfor\b.*\bin\b.*(loader|batche?s\b|queue|data_?iter|dataset)",
    re.IGNORECASE,
)
# Groups of functions that work on samples, whoever calls them.
_PREPARING = ("read", "network", "decode", "decompress", "lookup", "tokenise")
_LOOP = re.compile(r"^(async )?for\b")
# Iterables in a loop that yield no batches: a progress bar around them, parameters of a model.
_NO_SOURCE = re.compile(r"/(tqdm|rich|torch|fastprogress|progressbar)/")


@dataclass(frozen=True)
class Divided:
    """Pieces of which those that hold input are cut in two."""

    pieces: Pieces
    before: Ints  # row of the piece each was cut from
    is_input: Flags
    sample_piece: Ints  # piece of each sample; -1 outside


def is_input(frames: Sequence[Sequence[Any]]) -> bool:
    """True if a sampled stack makes, or waits for, a batch.

    Args:
        frames: innermost first, ``[file, line, function, source, is_user]`` as the record keeps them.
    """
    if function_group(frames) in _PREPARING:
        return True
    inner = ""
    for file, _line, function, source, _user in frames:
        text = str(source).strip()
        if _FUNCTION.search(str(function)) and not _NO_SOURCE.search(str(file)):
            return True
        if _NO_SOURCE.search(inner):
            pass
        elif _SOURCE.search(text) or (inner and _LOOP.match(text)):
            return True
        inner = str(file).replace("\\", "/")
    return False


def divide_input(pieces: Pieces, candidates: Flags, account: Ints, gap: Ints, samples: Samples) -> Divided:
    """Divide candidate pieces by the stack samples: those in a group of gaps stand for all of its time.

    Args:
        pieces: of the training thread.
        candidates: those that may hold input.
        account: account code of each piece.
        gap: group of each piece: those of one group lie between the same kinds of spans.
        samples: stack samples of the thread.
    """
    piece = pieces.at(samples.time_ns)
    of_stack = {int(id): is_input(frames_of(samples.names, int(id))) for id in np.unique(samples.stack)}
    shows = np.array([of_stack[id] for id in samples.stack.tolist()], bool)
    shows &= (piece >= 0) & (candidates[piece] if len(candidates) else False)
    kind = gap * (int(account.max(initial=0)) + 1) + account
    part = np.zeros(len(pieces))
    for each in np.unique(kind[piece[shows]]).tolist():
        met = (piece >= 0) & (kind[piece] == each)
        part[candidates & (kind == each)] = samples.weight[met & shows].sum() / samples.weight[met].sum()
    cut = pieces.start + np.round(part * pieces.length).astype(np.int64)
    first, second = np.flatnonzero(cut > pieces.start), np.flatnonzero(cut < pieces.end)
    # The input part is placed first: its length within a gap is known, its position is not.
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
