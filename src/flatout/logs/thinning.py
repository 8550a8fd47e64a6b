"""Long logs are read in part: all of their first lines, then a scattered sample, and the ends of what repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator

WHOLE = 4000  # lines or records of a kind that are all read
ONE_IN = 32
NOTE = f"long: after {WHOLE:,} lines of a kind, about one in {ONE_IN} was read, and the last before each change"
_NUMBERS = b"0123456789.+-e \t"
_EPOCH = re.compile(rb"[Ee]poch\D{0,4}(\d+)")


def kept(number: int) -> bool:
    """Whether to read the ``number``-th of many alike; scattered, so that it does not beat with what repeats."""
    return number <= WHOLE or (number * 2654435761 & 0xFFFFFFFF) < 0xFFFFFFFF // ONE_IN


def thinned(pieces: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Of the states of one bar keep every 16th and the last; of lines alike a sample and the last.

    A bar goes on while what stands before its percentage stays the same and the percentage does not fall. Lines are
    alike if they differ in numbers only, and not in the number of the epoch.
    """
    held: tuple[int, bytes] | None = None
    head: object = None
    percent, count, lines = b"", 0, 0
    for entry in pieces:
        piece = entry[1]
        place = piece.find(b"%|")
        if place >= 3:
            key: object = piece[: place - 3]
            same = key == head and piece[place - 3 : place] >= percent
            percent = piece[place - 3 : place]
            count = count + 1 if same else 1
            emitted = count % 16 == 1
        else:
            lines += 1
            if lines <= WHOLE:
                same, emitted, key = False, True, None
            else:
                epoch = _EPOCH.search(piece)
                key = (piece.translate(None, _NUMBERS), epoch and epoch[1])
                same = key == head
                emitted = not same or kept(lines)
        if not same and held is not None:
            yield held
            held = None
        head = key
        if emitted:
            yield entry
            held = None
        else:
            held = entry
    if held is not None:
        yield held
