"""Padding in the batches of some steps after the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.measure.thresholds import NOISE_SHARE
from flatout.measure.timeline import Floats
from flatout.record import ProcessRecord


@dataclass(frozen=True)
class Padding:
    """The padded rows of a few batches.

    Attributes:
        tensor: its place in the batch; empty where the batch is a tensor.
        sides: of the canvas on which pictures or volumes lie; empty for rows.
        evidence: ``mask``, ``lengths`` or ``tokens``.
        value: that fills rows, where tokens are the evidence.
        part: of a batch's elements, those of tensors with the padded shape, 0..1.
        padded: length of each batch, padding included; of a canvas, its positions.
        rows: the lengths of each batch's rows, without padding; the positions of each sample on a canvas.
    """

    tensor: str
    sides: tuple[int, ...]
    evidence: str
    value: int | None
    part: float
    padded: Floats
    rows: tuple[Floats, ...]

    @property
    def share(self) -> float:
        """Part of all positions that is padding."""
        return 1.0 - float(sum(rows.sum() for rows in self.rows)) / self._positions

    @property
    def longest(self) -> float:
        """Mean length of a batch's longest row."""
        return float(np.mean([rows.max() for rows in self.rows]))

    @property
    def trimmed(self) -> float:
        """Part of all positions that goes if each batch ends with its longest row."""
        return 1.0 - float(sum(len(rows) * rows.max() for rows in self.rows)) / self._positions

    @property
    def grouped(self) -> float:
        """The same if these rows, sorted by length, make up the batches.

        Among more rows than those of a few batches are more of one length: at least as much goes.
        """
        lengths = np.sort(np.concatenate(self.rows))
        ends = np.cumsum([len(rows) for rows in self.rows]) - 1
        counts = np.diff(np.concatenate(([-1], ends)))
        return 1.0 - float((counts * lengths[ends]).sum()) / self._positions

    @property
    def mixed(self) -> bool:
        """True if rows of different lengths share batches: sorting them gains more than trimming."""
        return self.grouped - self.trimmed >= NOISE_SHARE

    @property
    def avoidable(self) -> float:
        """Part of all positions that goes by sorting and trimming, or by trimming alone where that does as much."""
        return self.grouped if self.mixed else self.trimmed

    @property
    def what(self) -> str:
        """The word for what is padded."""
        return "sample" if self.sides else "row"

    @property
    def fixed(self) -> bool:
        """True if batches are longer than their longest row."""
        return self.trimmed >= NOISE_SHARE

    @property
    def _positions(self) -> float:
        return float(sum(length * len(rows) for length, rows in zip(self.padded, self.rows, strict=True)))


def read_padding(process: ProcessRecord) -> Padding | str | None:
    """The padding in the training's batches; None: none is computed; a text: why that is not known."""
    seen = process.info.get("padding") or {}
    if not seen.get("looked_at"):
        return str(process.info.get("experiments_skipped") or "no batch of a DataLoader was looked at after the window")
    batches = [batch for batch in seen.get("batches") or () if _holds_together(batch)]
    if not batches or seen.get("computed") is False:
        return None
    if seen.get("computed") is None:
        return (
            "batches are padded, and the graph of the loss, which shows whether the model computes that, was not read"
        )
    return Padding(
        tensor=seen.get("tensor", ""),
        sides=tuple(seen.get("sides") or ()),
        evidence=seen.get("evidence", ""),
        value=seen.get("value"),
        part=seen.get("part", 0.0),
        # Packed rows are unpacked up to the longest.
        padded=np.array([max(batch[1:]) if seen.get("packed") else batch[0] for batch in batches], np.float64),
        rows=tuple(np.array(batch[1:], np.float64) for batch in batches),
    )


def _holds_together(batch: Any) -> bool:
    return len(batch) > 1 and batch[0] > 0 and max(batch[1:]) <= batch[0]
