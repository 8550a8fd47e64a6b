"""Counts of a staging over time, in bounded memory: what its rates are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_POINTS = 1_000
EVERY_S = 0.2  # at first; twice as long whenever there are MOST_POINTS


@dataclass(frozen=True)
class Point:
    """Where a staging was at a moment, in seconds since its start."""

    at_s: float
    copied: int
    copied_bytes: int
    concurrency: int
    retries: int
    failed: int


@dataclass
class Pace:
    """Points at least ``every_s`` seconds apart."""

    every_s: float = EVERY_S
    points: list[Point] = field(default_factory=list)

    def due(self, at_s: float) -> bool:
        """True if it is time for a point."""
        return not self.points or at_s >= self.points[-1].at_s + self.every_s

    def add(self, point: Point) -> None:
        """Keep a point; of too many, every other one goes."""
        self.points.append(point)
        if len(self.points) >= MOST_POINTS:
            self.points = self.points[::2]
            self.every_s *= 2
