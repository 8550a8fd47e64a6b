"""A text log of any mixture: each line is offered to the parsers whose cue it holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import IO

from flatout.logs.observations import Observation
from flatout.logs.readers import keras, meters, nnunet, progress, prose, steps, trainer_dicts, troubles
from flatout.logs.text import decoded, lines, quoted

PROSE_BYTES = 1 << 20  # sentences are looked for in so much of a file
Parser = Callable[[str], list[Observation]]
# In the order of trial: the first that understands a line has it.
PARSERS: tuple[tuple[re.Pattern[bytes], Parser], ...] = tuple(
    (re.compile(module.CUE), module.parse)
    for module in (progress, trainer_dicts, meters, keras, nnunet, steps, troubles)
)
_ANY = re.compile(b"|".join(b"(?:%s)" % pattern.pattern for pattern, _ in PARSERS))
_TIME = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(Z|[+-]\d\d:?\d\d)?")


def read(file: IO[bytes]) -> Iterator[Observation]:
    """Yield what the lines say, in their order."""
    reader = prose.ProseReader()
    wanted = _Wanted()
    for number, piece in lines(file, wanted):
        observed = parse_line(piece, reader if wanted.seen < PROSE_BYTES else None)
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

    def __call__(self, piece: bytes) -> bool:
        if self.seen < PROSE_BYTES:
            self.seen += len(piece)
            return bool(piece)
        return _ANY.search(piece) is not None


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


def line_time(text: str) -> tuple[float | None, bool]:
    """The time at the head of a line, and whether it names its zone; without one it is counted as UTC."""
    found = _TIME.search(text, 0, 60)
    if found is None:
        return None, False
    year, month, day, hour, minute, second = (int(found[place]) for place in range(1, 7))
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None, False
    moment += float(f"0.{found[7]}") if found[7] else 0.0
    zone = found[8]
    if zone and zone != "Z":
        offset = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        moment -= offset if zone[0] == "+" else -offset
    return moment, zone is not None


