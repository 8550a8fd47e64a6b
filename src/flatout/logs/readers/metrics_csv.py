"""Tables of metrics by epoch or step: timm's summary.csv, Lightning's metrics.csv."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation
from flatout.logs.text import decoded, lines, quoted

_SECONDS = {"epoch_time", "epoch_seconds", "time_per_epoch"}


def fits(head: bytes, name: str) -> bool:
    """Its first line names an epoch or a step among other columns."""
    first = head.split(b"\n", 1)[0].strip().lower()
    columns = [cell.strip(b'" ') for cell in first.split(b",")]
    return len(columns) > 1 and bool({b"epoch", b"step"} & set(columns)) and not any(c[:1].isdigit() for c in columns)


def read(file: IO[bytes], _: Path) -> Iterator[Observation]:
    """Yield the metrics of each row; an empty cell is none."""
    columns: list[str] = []
    for number, piece in lines(file, bool):
        text = decoded(piece)
        cells = next(csv.reader([text]), [])
        if not columns:
            columns = [cell.strip() for cell in cells]
            continue
        values: dict[str, float] = {}
        seconds = None
        for column, cell in zip(columns, cells, strict=False):
            value = _float(cell)
            if value is None:
                continue
            if column.lower() in ("epoch", "step"):
                values[column.lower()] = value
            elif column.lower() in _SECONDS:
                seconds = value
            else:
                values |= named_metrics(f"{column}: {value!r}") or {column[:80]: value}
        if values:
            yield Observation(Kind.METRICS, values, {}, None, False, number, quoted(text))
        if seconds is not None and "epoch" in values:
            found = {"epoch": values["epoch"], "seconds": seconds}
            yield Observation(Kind.EPOCH, found, {"of": "table"}, None, False, number, quoted(text))


def _float(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
