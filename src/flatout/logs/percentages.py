"""Accuracies without a unit: a fraction or percent, as the rest of the file tells."""

from __future__ import annotations

from flatout.logs.facts import Series
from flatout.logs.metrics import BARE, CUSTOM


class Percentages:
    """Brings the accuracies of a file to 0 to 1: once one is above 1, those beside it were in percent too.

    ``Acc@1`` counts as one. Training and validation count separately, since a script may print them differently.
    """

    def __init__(self, metrics: dict[str, Series]) -> None:
        self._metrics = metrics
        self._in_percent: set[str] = set()  # splits
        self._marked: set[str] = set()  # names of which a line gave the scale

    def scaled(self, values: dict[str, float]) -> dict[str, float]:
        """The values of a line under their plain names; what was taken for a fraction before is put right."""
        for name, value in values.items():
            if name.endswith(CUSTOM) or (name.endswith(BARE) and value > 1):
                self._turn(_split(name))
        found = {}
        for name, value in values.items():
            plain = name.rstrip(BARE + CUSTOM)
            if name.endswith(BARE):
                found[plain] = value / 100 if _split(name) in self._in_percent else value
            else:
                self._marked.add(plain)
                found[plain] = value
        return found

    def _turn(self, split: str) -> None:
        if split in self._in_percent:
            return
        self._in_percent.add(split)
        for name, series in self._metrics.items():
            if "acc" in name and _split(name) == split and name not in self._marked:
                series.points = [(at, value / 100) for at, value in series.points]
                series.last, series.least, series.most = series.last / 100, series.least / 100, series.most / 100
                series.first /= 100


def _split(name: str) -> str:
    """Of train_acc1 "train"; empty where none is named."""
    return name.rpartition("_")[0]
