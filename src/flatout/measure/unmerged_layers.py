"""Layers that multiply the same input one after the other, as a step after the window shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flatout.record import ProcessRecord
from flatout.results import Line


@dataclass(frozen=True)
class UnmergedLayers:
    """Groups of layers of one kind, of which each takes one input.

    Attributes:
        operator: ``mm``, ``addmm`` or ``convolution``.
        layers: of a group.
        groups: in a step.
        shape: of the input.
        apart_s: seconds of both passes of a group, one layer after the other; None: not timed.
        part: time of one layer in place of all over that, the fastest rounds of both.
        low: the least of the rounds.
        high: the most of them.
        lines: that call them, without seconds; most calls first.
        skipped: why they were not timed.
    """

    operator: str
    layers: int
    groups: int
    shape: tuple[int, ...]
    apart_s: float | None = None
    part: float = 1.0
    low: float = 1.0
    high: float = 1.0
    lines: tuple[Line, ...] = ()
    skipped: str = ""

    def saved_s(self, part: float) -> float:
        """Seconds of a step, where one layer takes this part of the time of all."""
        return 0.0 if self.apart_s is None else self.groups * self.apart_s * (1.0 - part)


def read_unmerged_layers(process: ProcessRecord) -> tuple[UnmergedLayers, ...]:
    """Those of the training process, the ones that save most first; empty: there are none, or nobody looked."""
    found = [_layers(seen) for seen in process.info.get("unmerged_layers") or ()]
    return tuple(sorted(found, key=lambda one: -one.saved_s(one.part)))


def _layers(seen: Mapping[str, Any]) -> UnmergedLayers:
    apart, joined = seen.get("apart_ns") or [], seen.get("joined_ns") or []
    lines = tuple(Line(file, line, function, "", 0.0) for file, line, function, _ in seen["lines"])
    what = seen["operator"], seen["layers"], seen["groups"], tuple(seen["input"])
    if not apart or not joined:
        return UnmergedLayers(*what, lines=lines, skipped=seen.get("skipped") or "they were not timed")
    parts = [min(one / many, 1.0) for one, many in zip(joined, apart, strict=False)]
    part = min(min(joined) / min(apart), 1.0)
    return UnmergedLayers(*what, min(apart) / 1e9, part, min(*parts, part), max(*parts, part), lines)
