"""Hand-made kernel traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from flatout.measure.traced_operators import REFERENCE

TRACED_US, SPACING_US, UNTRACED_NS = 2.0, 3.0, 1000  # tracing adds 2 µs to an operator


class Trace:
    """Events of a trace in the making; ``now`` is in µs."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 1000.0

    def add(self, category: str, name: str, start: float, duration: float, **arguments: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "tid": 7, "args": arguments}
        )

    def operators(self, count: int, work_us: float, type: str = "float", name: str = "aten::mul") -> None:
        """Operators one after the other, each with this work in its kernel."""
        for _ in range(count):
            shapes, types = [[8, 8], []], [type, "Scalar"]
            self.add("cpu_op", name, self.now, TRACED_US + work_us, **{"Input Dims": shapes, "Input type": types})
            self.now += SPACING_US + work_us

    def copies(self, count: int, work_us: float, read: list[int], types: tuple[str, str] = ("float", "float")) -> None:
        """Copies of pixels into a contiguous tensor, from one with these strides."""
        inputs = {"Input Dims": [[8, 4, 6, 6]] * 2, "Input type": list(types), "Input Strides": [[144, 36, 6, 1], read]}
        for _ in range(count):
            self.add("cpu_op", "aten::copy_", self.now, TRACED_US + work_us, **inputs)
            self.now += SPACING_US + work_us

    def update(self) -> None:
        self.add("user_annotation", "Optimizer.step#SGD.step", self.now, 1.0)
        self.now += 1.0

    def reference(self) -> None:
        start = self.now
        self.operators(50, 0.0, name="aten::add")
        self.add("user_annotation", REFERENCE, start, self.now - start)

    def write(self, path: Path) -> None:
        with gzip.open(path, "wt") as file:
            json.dump({"traceEvents": self.events}, file)
