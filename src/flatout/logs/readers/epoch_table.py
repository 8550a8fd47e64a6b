"""A table with a row for each epoch and its time, as fastai prints it."""

from __future__ import annotations

import re

from flatout.logs.observations import Kind, Observation
from flatout.logs.readers.progress import clock

_HEAD = re.compile(r"epoch(?:\s+\w+)+\s+time")
_NAME = re.compile(r"(?i)^(train|valid|val)_(loss|acc\w*)$")
_NAMES = {"accuracy": "val_acc1", "error_rate": "val_error"}  # measured on the validation set


class EpochTable:
    """Reads a text line by line; keeps the names of the columns of the table that it is in."""

    def __init__(self) -> None:
        self._columns: list[str] = []

    def parse(self, text: str) -> list[Observation]:
        """A row: the epoch's time and metrics."""
        row = text.strip()
        if _HEAD.fullmatch(row):
            self._columns = row.split()
            return []
        cells = row.split()
        if not self._columns or len(cells) != len(self._columns) or not cells[0].isdecimal():
            if row:
                self._columns = []
            return []
        try:
            values = dict(zip(map(_metric, self._columns[1:-1]), map(float, cells[1:-1]), strict=True))
            seconds = clock(cells[-1])
        except ValueError:  # "None" where nothing was measured, and what is no row
            return []
        epoch = float(cells[0])
        return [
            Observation(Kind.EPOCH, {"epoch": epoch, "seconds": seconds}, {"of": "table"}),
            Observation(Kind.METRICS, values | {"epoch": epoch}),
        ]


def _metric(column: str) -> str:
    found = _NAME.match(column)
    if found is None:
        return _NAMES.get(column, column)
    return f"{'train' if found[1].lower() == 'train' else 'val'}_{found[2].lower()}"
