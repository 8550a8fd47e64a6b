"""MLflow's folders: a file for each metric (time, value, step a line) and for each parameter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation

_SETTINGS = {"batch_size": "batch_size", "epochs": "epochs", "max_epochs": "epochs", "num_workers": "workers"}


def is_metric(path: Path) -> bool:
    """A file in a run's folder of metrics or parameters."""
    return any(
        parent.name in ("metrics", "params") and (parent.parent / "meta.yaml").exists()
        for parent in list(path.parents)[:3]
    )


def read(file: IO[bytes], path: Path) -> Iterator[Observation]:
    """Yield the points of a metric, or the parameter."""
    folder = next(parent for parent in path.parents if parent.name in ("metrics", "params"))
    name = str(path.relative_to(folder))
    if folder.name == "params":
        given = file.read(1000).decode("utf-8", "replace").strip()
        if name in _SETTINGS and given.isdigit():
            yield Observation(
                Kind.SETTING, {_SETTINGS[name]: float(given)}, {"phase": "seen"}, line=1, text=f"{name} = {given}"
            )
        return
    is_step = name.startswith("train") or name == "loss"
    number = 0
    while line := file.readline(1000):
        number += 1
        parts = line.split()
        try:
            time_s, value, step = (
                float(parts[0]) / 1000,
                float(parts[1]),
                float(parts[2]) if len(parts) > 2 else float(number),
            )
        except (ValueError, IndexError):
            continue
        shown = f"{name} = {value:g}"
        metrics = (named_metrics(f"{name}: {value!r}") or {name[:80]: value}) | {"step": step}
        yield Observation(Kind.METRICS, metrics, {}, time_s, True, number, shown)
        if is_step:
            yield Observation(Kind.STEP, {"step": step}, {"of": name}, time_s, True, number, shown)
