"""nvidia-smi: CSV of --query-gpu, the columns of dmon, and the table that it prints without options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flatout.logs.observations import Kind, Observation
from flatout.logs.readers.line_times import line_time
from flatout.logs.text import decoded, lines, quoted
from flatout.logs.thinning import NOTE, WHOLE, kept

CUE = rb"\d+MiB / +\d+MiB"
_TABLE = re.compile(r"(?:(\d+)C\s+\S+\s+)?(?:(\d+)W\s*/\s*\d+W)?\s*\|\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|\s*(\d+)%")
_QUERY = {
    "utilization.gpu": ("utilisation", 0.01),
    "memory.used": ("used_bytes", 2.0**20),
    "memory.total": ("total_bytes", 2.0**20),
    "power.draw": ("watts", 1.0),
    "clocks.sm": ("clock_hz", 1e6),
    "clocks.current.sm": ("clock_hz", 1e6),
    "temperature.gpu": ("celsius", 1.0),
    "index": ("index", 1.0),
}
_DMON = {
    "gpu": ("index", 1.0),
    "sm": ("utilisation", 0.01),
    "pwr": ("watts", 1.0),
    "gtemp": ("celsius", 1.0),
    "pclk": ("clock_hz", 1e6),
    "fb": ("used_bytes", 2.0**20),
}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def parse(text: str) -> list[Observation]:
    """A row of the table that nvidia-smi prints."""
    found = _TABLE.search(text)
    if found is None:
        return []
    names = (("celsius", 1.0), ("watts", 1.0), ("used_bytes", 2.0**20), ("total_bytes", 2.0**20), ("utilisation", 0.01))
    values = {name: float(part) * scale for (name, scale), part in zip(names, found.groups(), strict=True) if part}
    return [Observation(Kind.DEVICE, values)]


def fits_query(head: bytes, name: str) -> bool:
    """Its first line names columns of --query-gpu."""
    first = head.split(b"\n", 1)[0]
    return b"," in first and any(word in first for word in (b"utilization.gpu", b"memory.used", b"power.draw"))


def fits_dmon(head: bytes, name: str) -> bool:
    """Its first line is the head of dmon."""
    return re.match(rb"#\s*(?:Date\s+Time\s+)?gpu\s", head) is not None


def read_query(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield a sample a row."""
    columns: list[str] = []
    for number, piece in lines(file, bool):
        if not kept(number):
            continue
        text = decoded(piece)
        cells = [cell.strip() for cell in text.split(",")]
        if not columns or cells[0] == columns[0]:
            columns = [re.sub(r"\s*\[.*", "", cell) for cell in cells]
            continue
        values, labels = {}, {"note": NOTE} if number > WHOLE else {}
        for column, cell in zip(columns, cells, strict=False):
            if column == "name":
                labels["name"] = cell[:80]
            elif column in _QUERY and (found := _NUMBER.match(cell)):
                name, scale = _QUERY[column]
                values[name] = float(found[0]) * scale
        if values.keys() - {"index"}:
            yield Observation(Kind.DEVICE, values, labels, line_time(text)[0], False, number, quoted(text))


def read_dmon(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield a sample a row; its head is repeated among the rows."""
    columns: list[str] = []
    for number, piece in lines(file, bool):
        text = decoded(piece)
        if text.startswith("#"):
            if re.search(r"\bgpu\b", text):
                columns = text[1:].split()
            continue
        values = {}
        for column, cell in zip(columns, text.split(), strict=False):
            if column in _DMON and _NUMBER.fullmatch(cell):
                name, scale = _DMON[column]
                values[name] = float(cell) * scale
        if values.keys() - {"index"}:
            day = re.sub(r"^\s*(\d{4})(\d\d)(\d\d)\s", r"\1-\2-\3 ", text)
            yield Observation(Kind.DEVICE, values, {}, line_time(day)[0], False, number, quoted(text))
