"""Columns of numbers that keep growing, in bounded memory: when they are full, neighbouring rows are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

MOST_ROWS = 3_000  # a chart has half as many bars


class JoinedSteps:
    """Step durations and their phases; each row sums ``joined`` steps, the last one perhaps fewer."""

    def __init__(self, names: tuple[str, ...], most: int = MOST_ROWS) -> None:
        self.names = names
        self.joined = 1
        self.first: list[int] = []  # number of the first step of each row
        self.start_ns: list[int] = []
        self.end_ns: list[int] = []
        self.steps: list[int] = []
        self.sums: dict[str, list[float]] = {name: [] for name in names}
        self.longest: list[float] = []
        self._most = most

    def __len__(self) -> int:
        return len(self.first)

    def add(self, number: int, start_ns: int, duration_s: float, values: Mapping[str, float]) -> None:
        """Add the step with this number."""
        end_ns = start_ns + round(duration_s * 1e9)
        if self.steps and self.steps[-1] < self.joined:
            self.steps[-1] += 1
            self.end_ns[-1] = end_ns
            self.longest[-1] = max(self.longest[-1], duration_s)
            for name in self.names:
                self.sums[name][-1] += values[name]
            return
        if len(self) >= self._most:
            self._join()
        self.first.append(number)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.steps.append(1)
        self.longest.append(duration_s)
        for name in self.names:
            self.sums[name].append(values[name])

    def _join(self) -> None:
        self.joined *= 2
        self.first, self.start_ns = self.first[::2], self.start_ns[::2]
        self.end_ns = _pairs(self.end_ns, lambda pair: pair[-1])
        self.steps = _pairs(self.steps, sum)
        self.longest = _pairs(self.longest, max)
        self.sums = {name: _pairs(values, sum) for name, values in self.sums.items()}


@dataclass
class _Point:
    time_ns: int
    value: float
    count: int


class JoinedSeries:
    """Values over time; joined ones keep their mean, or their largest where ``peak``."""

    def __init__(self, unit: str, peak: bool, most: int = MOST_ROWS // 2) -> None:
        self.unit, self.joined = unit, 1
        self._peak, self._most = peak, most
        self._points: list[_Point] = []

    def add(self, time_ns: int, value: float) -> None:
        """Add a value."""
        if self._points and self._points[-1].count < self.joined:
            self._points[-1] = self._merged(self._points[-1], _Point(time_ns, value, 1))
            return
        if len(self._points) >= self._most:
            self.joined *= 2
            self._points = _pairs(self._points, lambda pair: pair[0] if len(pair) == 1 else self._merged(*pair))
        self._points.append(_Point(time_ns, value, 1))

    def points(self) -> list[tuple[int, float]]:
        """Time in ns and value of each point."""
        return [(point.time_ns, point.value) for point in self._points]

    def _merged(self, first: _Point, second: _Point) -> _Point:
        count = first.count + second.count
        mean = (first.value * first.count + second.value * second.count) / count
        return _Point(first.time_ns, max(first.value, second.value) if self._peak else mean, count)


def _pairs(values: list[T], joined: Callable[[list[T]], T]) -> list[T]:
    return [joined(values[at : at + 2]) for at in range(0, len(values), 2)]
