"""Intensities of a data set in bounded memory: exact for up to 16 bits, percentiles of a sample for others."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SAMPLE = 1 << 20  # voxels of a volume from which percentiles of 32-bit types are taken
_PIECE = 1 << 20  # voxels counted at once: bincount makes 8 bytes of each
PERCENTILES = {"p0_5": 0.005, "p99_5": 0.995}


@dataclass
class Intensities:
    """Values with how often each occurs, and exact moments.

    Attributes:
        values: sorted.
        counts: of each; of a sample, scaled to the number of voxels.
    """

    values: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]
    voxels: int
    mean: float
    squares: float  # sum of squared distances from the mean
    low: float
    high: float

    def save(self, path: Path) -> None:
        """Write to a file."""
        moments = np.array([self.voxels, self.mean, self.squares, self.low, self.high])
        counts = self.counts[:1] if (self.counts == self.counts[:1]).all() else self.counts  # of a sample: all alike
        short = self.values.astype(np.float32)
        values = short if (short == self.values).all() else self.values
        with path.open("wb") as file:
            np.savez(file, values=values, counts=counts, moments=moments)

    @classmethod
    def load(cls, path: Path) -> Intensities:
        """Read from a file."""
        with np.load(path, allow_pickle=False) as found:
            voxels, mean, squares, low, high = (float(value) for value in found["moments"])
            values = found["values"].astype(np.float64)
            counts = np.broadcast_to(found["counts"], values.shape).copy()
            return cls(values, counts, int(voxels), mean, squares, low, high)


def is_counted(dtype: np.dtype[Any]) -> bool:
    """True for types of which each value is counted; of others a sample is kept."""
    return dtype.kind in "iu" and dtype.itemsize <= 2


def saved_bytes(dtype: np.dtype[Any], voxels: int) -> int:
    """Size of what is saved of a volume; 0 for types whose values are counted, whose number is not known before."""
    return 0 if is_counted(dtype) else voxels // max(voxels // SAMPLE, 1) * min(dtype.itemsize, 8)


class Counting:
    """Counts the voxels of one volume, block by block."""

    def __init__(self, dtype: np.dtype[Any], voxels: int) -> None:
        self._exact = is_counted(dtype)
        self._lowest = int(np.iinfo(dtype).min) if self._exact else 0
        self._bins = np.zeros(256**dtype.itemsize if self._exact else 0, np.int64)
        self._stride = max(voxels // SAMPLE, 1)
        self._phase = 0
        self._sample: list[npt.NDArray[np.float64]] = []
        self._voxels, self._mean, self._squares = 0, 0.0, 0.0
        self._low, self._high = math.inf, -math.inf

    def add(self, block: npt.NDArray[Any]) -> None:
        """Count the voxels of a block."""
        flat = np.ascontiguousarray(block).reshape(-1)
        if self._exact:
            for at in range(0, flat.size, _PIECE):
                piece = flat[at : at + _PIECE]
                shifted = piece.astype(np.int64) - self._lowest if self._lowest else piece
                self._bins += np.bincount(shifted, minlength=self._bins.size)
            return
        for at in range(0, flat.size, _PIECE):
            self._add_moments(flat[at : at + _PIECE].astype(np.float64))
        self._sample.append(flat[self._phase :: self._stride].astype(np.float64))
        self._phase = (self._phase - flat.size) % self._stride

    def _add_moments(self, piece: npt.NDArray[np.float64]) -> None:
        """Chan, Golub, LeVeque 1979: moments of two samples from those of each."""
        self._mean, self._squares, self._voxels = _merged(
            (self._mean, self._squares, self._voxels),
            (float(piece.mean()), float(piece.var()) * piece.size, piece.size),
        )
        self._low, self._high = min(self._low, float(piece.min())), max(self._high, float(piece.max()))

    def result(self) -> Intensities:
        """What was counted."""
        if self._exact:
            (there,) = np.nonzero(self._bins)
            values, counts = (there + self._lowest).astype(np.float64), self._bins[there].astype(np.float64)
            voxels = int(self._bins.sum())
            mean = float((values * counts).sum() / voxels)
            squares = float((counts * (values - mean) ** 2).sum())
            return Intensities(values, counts, voxels, mean, squares, float(values[0]), float(values[-1]))
        sample = np.sort(np.concatenate(self._sample))
        counts = np.full(sample.size, self._voxels / max(sample.size, 1))
        return Intensities(sample, counts, self._voxels, self._mean, self._squares, self._low, self._high)


def summarize(volumes: Iterable[Intensities]) -> dict[str, float]:
    """Mean, standard deviation, percentiles and range of all voxels of all volumes."""
    every = list(volumes)
    mean, squares, voxels = 0.0, 0.0, 0
    for part in every:
        mean, squares, voxels = _merged((mean, squares, voxels), (part.mean, part.squares, part.voxels))
    values = np.concatenate([part.values for part in every])
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(np.concatenate([part.counts for part in every])[order])
    found = {"mean": mean, "std": math.sqrt(squares / voxels)}
    for name, share in PERCENTILES.items():
        at = int(np.searchsorted(cumulated, share * cumulated[-1]))
        found[name] = float(values[order][min(at, len(values) - 1)])
    return found | {"min": min(part.low for part in every), "max": max(part.high for part in every)}


def _merged(a: tuple[float, float, int], b: tuple[float, float, int]) -> tuple[float, float, int]:
    (mean_a, squares_a, n_a), (mean_b, squares_b, n_b) = a, b
    n = n_a + n_b
    if not n:
        return 0.0, 0.0, 0
    distance = mean_b - mean_a
    return mean_a + distance * n_b / n, squares_a + squares_b + distance**2 * n_a * n_b / n, n
