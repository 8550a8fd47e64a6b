"""A text log of any mixture: each line is offered to the parsers whose cue it holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from flatout.logs.observations import Kind, Observation
from flatout.logs.readers import keras, meters, nnunet, nvidia_smi, progress, prose, steps, trainer_dicts, troubles
from flatout.logs.readers.line_times import line_time
from flatout.logs.readers.policy_tables import PolicyTables
from flatout.logs.text import LONGEST_LINE, decoded, lines, quoted
from flatout.logs.thinning import thinned
from flatout.units import size

PROSE_BYTES = 1 << 20  # sentences are looked for in so much of a file
Parser = Callable[[str], list[Observation]]
# In the order of trial: the first that understands a line has it.
PARSERS: tuple[tuple[re.Pattern[bytes], Parser], ...] = tuple(
    (re.compile(module.CUE), module.parse)
    for module in (progress, trainer_dicts, meters, keras, nnunet, steps, nvidia_smi, troubles)
)
_ANY = re.compile(b"|".join(b"(?:%s)" % pattern.pattern for pattern, _ in PARSERS))


def read(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield what the lines say, in their order."""
    reader, tables = prose.ProseReader(), PolicyTables()
    wanted = _Wanted()
    for number, piece in thinned(lines(file, wanted, wanted.block)):
        if len(piece) >= LONGEST_LINE:
            note = f"line {number} is longer than {size(LONGEST_LINE)}: the rest of it was not read"
            yield Observation(Kind.NOTE, labels={"note": note})
        observed = tables.parse(decoded(piece)) if piece.startswith(b"|") else []
        observed = observed or parse_line(piece, reader if wanted.seen < PROSE_BYTES else None)
        if not observed:
            continue
        text = decoded(piece)
        time_s, zoned = line_time(text)
        shown = quoted(text)
        for one in observed:
            one.line, one.text, one.time_s, one.zoned = number, shown, time_s, zoned
        yield from observed


class _Wanted:
    """Chooses lines by their bytes; counts how far prose is still looked for."""

    def __init__(self) -> None:
        self.seen = 0

    def block(self, block: bytes) -> bool:
        """Whether to look at the lines of a block."""
        return self.seen < PROSE_BYTES or hints(block)

    def __call__(self, piece: bytes) -> bool:
        if self.seen < PROSE_BYTES:
            self.seen += len(piece)
            return bool(piece)
        return hints(piece)


def hints(piece: bytes) -> bool:
    """A parser may understand it: a chain of substrings, several times as fast as one expression for all."""
    return (
        b"%|" in piece
        or b"oss" in piece
        or b"tep" in piece
        or b"it/s" in piece
        or b"s/it" in piece
        or b"ime" in piece
        or b"Train: " in piece
        or b"Test: " in piece
        or b"/s" in piece
        or b"\xe2\x94\x81" in piece  # of rich's bars
        or b"RESOURCES" in piece
        or b"MiB /" in piece
        or b"Pseudo" in piece
        or b"memory" in piece
        or b"kill" in piece
        or b"Kill" in piece
        or b"No space" in piece
        or b"us error" in piece
        or b"unable to write" in piece
        or b"'eval_" in piece
        or b"Epoch " in piece
        or b"iter" in piece
        or (b"| " in piece and b"fps " in piece)  # of a table
    )


def parse_line(piece: bytes, reader: prose.ProseReader | None) -> list[Observation]:
    """What one line says; prose is read only with a reader for it."""
    text = ""
    if _ANY.search(piece):
        text = decoded(piece)
        for cue, parse in PARSERS:
            if cue.search(piece) and (observed := parse(text)):
                return observed
    if reader is None:
        return []
    return reader.parse(text or decoded(piece))
