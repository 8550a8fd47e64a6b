"""Measuring grids: every configuration of a training recorded in turn; the records serve predictions and searches."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from flatout.compare.speed import speed_of
from flatout.record import Run, load_run

HERE = Path(__file__).resolve().parent
Configuration = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Grid:
    """One training, and the settings that vary.

    Attributes:
        name: of the grid.
        options: of the script that stay.
        vary: option -> values.
        start: the configuration that predictions start from.
    """

    name: str
    options: dict[str, Any]
    vary: dict[str, list[Any]]
    start: Configuration

    def configurations(self) -> list[Configuration]:
        """All, in order; a queue without workers is one configuration, whatever its depth."""
        found: list[Configuration] = []
        for values in itertools.product(*self.vary.values()):
            configuration = dict(zip(self.vary, values, strict=True))
            if configuration.get("workers") == 0 and configuration.get("prefetch", 2) != 2:
                continue
            found.append(tuple(configuration.items()))
        return found


@dataclass(frozen=True)
class Measured:
    """Repeated runs of one configuration.

    Attributes:
        runs: records, in the order of rounds.
        rates: samples/s of each.
    """

    runs: tuple[Run, ...]
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """The median."""
        return statistics.median(self.rates)


def read_grids(names: list[str] | None) -> list[Grid]:
    """Those of grids.yaml; ``names``: only these."""
    entries = YAML(typ="safe").load((HERE / "grids.yaml").read_text())
    return [
        Grid(name, entry["options"], entry["vary"], tuple(entry["from"].items()))
        for name, entry in entries.items()
        if not names or name in names
    ]


def measure(grid: Grid, folder: Path, seconds: float, rounds: int) -> dict[Configuration, Measured]:
    """Record what is not recorded yet; the order is another one in each round."""
    for number in range(rounds):
        configurations = grid.configurations()
        random.Random(number).shuffle(configurations)
        for configuration in configurations:
            path = _path(folder, grid, configuration, number)
            if not (path / "run.json").is_file():
                shutil.rmtree(path, ignore_errors=True)
                _record(grid, configuration, path, seconds)
                print(f"  {grid.name} {dict(configuration)}: {speed_of(load_run(path)).rate:,.1f}", flush=True)
    return {configuration: _read(grid, configuration, folder, rounds) for configuration in grid.configurations()}


def _read(grid: Grid, configuration: Configuration, folder: Path, rounds: int) -> Measured:
    runs = tuple(load_run(_path(folder, grid, configuration, number)) for number in range(rounds))
    return Measured(runs, tuple(speed_of(run, settle=True).rate for run in runs))


def _path(folder: Path, grid: Grid, configuration: Configuration, number: int) -> Path:
    values = "-".join(f"{name}{value}" for name, value in configuration)
    return folder / grid.name / f"{values}-{number}"


def _record(grid: Grid, configuration: Configuration, path: Path, seconds: float) -> None:
    options = {**grid.options, **dict(configuration)}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = path.parent / "recording"
    command = [sys.executable, "-m", "flatout", "profile", "--no-trace", "--quiet", "--json", "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--runs-dir", str(runs), "--", sys.executable, str(HERE / "grid_script.py"), *words],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{grid.name} {dict(configuration)}: {done.stderr[-400:]}")
    recorded = next(_run_folders(runs))
    recorded.rename(path)
    shutil.rmtree(runs)


def _run_folders(runs: Path) -> Iterator[Path]:
    return (folder for folder in runs.iterdir() if (folder / "run.json").is_file())
