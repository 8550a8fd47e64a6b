"""Numbers in the JSON lines of a training's own: {"step": 10, "loss": 2.3, "step_time": 0.5}."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation
from flatout.logs.readers.trainer_dicts import number

_STEPS = ("step", "global_step", "iter", "iteration", "it", "n_step")
_STEP_S = ("step_time", "iter_time", "batch_time", "time_per_step", "time_per_iter", "s_per_step", "step_s", "dt")
_DATA_S = ("data_time", "load_time", "wait_time", "data_s", "dataload_time")
_RATES = ("samples_per_sec", "samples_per_second", "images_per_sec", "img_per_sec", "throughput_samples")
_CLOCKS = ("time", "timestamp", "_timestamp", "ts", "elapsed", "elapsed_s", "elapsed_time", "wall_time", "_runtime")
_LEAST_CLOCK = 1e8  # seconds since 1970 are beyond it; those since a start are not
_DECIDED_BY = 3  # rows that show whether a time grows


class JsonRows:
    """Reads row by row. A ``time`` may be a clock, or how long the steps took: its first rows show which."""

    def __init__(self) -> None:
        self._held: list[tuple[Observation, float]] = []
        self._grows: bool | None = None

    def parse(self, row: Any) -> Iterator[Observation]:
        """What a row says, later once it is known what its times mean."""
        if not isinstance(row, dict):
            return
        values = {str(name).lower(): value for name, one in row.items() if (value := number(one)) is not None}
        step = next((values[name] for name in _STEPS if name in values), None)
        if step is None:
            return
        when = {"step": step} | ({"epoch": values["epoch"]} if "epoch" in values else {})
        metrics = named_metrics(", ".join(f"{name}: {value}" for name, value in values.items() if math.isfinite(value)))
        if "loss" in metrics:
            metrics["train_loss"] = metrics.pop("loss")
        if metrics:
            yield Observation(Kind.METRICS, metrics | when)
        one = Observation(Kind.STEP, dict(when))
        for name, keys in (("step_s", _STEP_S), ("data_s", _DATA_S), ("samples_s", _RATES)):
            for key in keys:
                if key in values or key + "_ms" in values:
                    one.values[name] = values[key] if key in values else values[key + "_ms"] / 1e3
                    break
        clock = next((values[name] for name in _CLOCKS if name in values), None)
        if "step_s" in one.values or clock is None:
            if len(one.values) > len(when):
                yield one
            return
        yield from self._timed(one, clock)

    def _timed(self, one: Observation, clock: float) -> Iterator[Observation]:
        if clock > _LEAST_CLOCK:
            one.time_s, one.zoned = clock, True
            yield one
            return
        self._held.append((one, clock))
        if self._grows is None and len(self._held) >= _DECIDED_BY:
            clocks = [time for _, time in self._held]
            self._grows = all(later > earlier for earlier, later in pairwise(clocks))
        if self._grows is None:
            return
        for held, time in self._held:
            if self._grows:
                held.time_s = time
                held.labels["note"] = "its times are seconds since its start"
            else:
                held.values["step_s"] = time
                held.labels["note"] = "its `time` does not grow: taken as the seconds of a step"
            yield held
        self._held = []
