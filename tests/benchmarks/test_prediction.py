"""The benchmarks of predictions, searches and fixes: grids, pages, and the searches on a table made by hand."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flatout.results import Gain

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    """One benchmark's run.py under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"{name}_run", FOLDER / name / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def parts() -> Iterator[SimpleNamespace]:
    before, known = list(sys.path), set(sys.modules)
    try:
        loaded = SimpleNamespace(**{name: load(name) for name in ("prediction", "search", "fix")})
        import grids  # the folder of the predictions is on the path now

        loaded.grids = grids
        yield loaded
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            if name in ("asking", "grids", "conditions", "rivals") or name.endswith("_run"):
                del sys.modules[name]


def test_every_grid_starts_from_one_of_its_configurations(parts: Any) -> None:
    grids = parts.grids.read_grids(None)
    assert len(grids) >= 8
    for grid in grids:
        assert grid.start in grid.configurations(), grid.name
    assert {grid.name for grid in grids} >= set(parts.search.GRIDS)
    assert all(len(grid.configurations()) >= 12 for grid in grids if grid.name in parts.search.GRIDS)


def test_a_queue_without_workers_is_one_configuration(parts: Any) -> None:
    grid = next(grid for grid in parts.grids.read_grids(["device_bound"]))
    assert sum(dict(configuration)["workers"] == 0 for configuration in grid.configurations()) == 1


def test_the_page_of_predictions_counts_errors_and_intervals(parts: Any) -> None:
    row = parts.prediction.Row
    rows = [
        row("g", "workers", (("workers", 4),), Gain(2.0, 1.8, 2.2), 2.1, 2.0),
        row("g", "workers", (("workers", 8),), Gain(4.0, 3.5, 4.5), None, 2.0),
    ]
    text = parts.prediction.page(rows, 4.0, 1)
    assert "| all | 2 | 50.0% | 90.0% | 50% | 5.0% of 1 |" in text
    assert "| g | workers 8 | 4.00 (3.50-4.50) | 2.00 | 100%, outside |" in text


def test_a_climb_stops_where_a_setting_stops_helping(parts: Any) -> None:
    grid = next(grid for grid in parts.grids.read_grids(["latency"]))
    rates = {1: 1.0, 2: 2.0, 4: 4.0, 8: 4.0}
    table = {
        configuration: SimpleNamespace(rate=rates[dict(configuration)["workers"]])
        for configuration in grid.configurations()
    }
    asked = parts.search.climbing(grid, table)
    assert [tuple(dict(configuration).values()) for configuration in asked] == [(2, 2), (4, 2), (8, 2), (4, 4)]
    assert len(parts.search.exhaustive(grid, table)) == 12


def test_the_page_of_fixes_says_what_was_kept_and_what_failed(parts: Any) -> None:
    row, fixed = parts.fix.Row, parts.fix.Fixed
    rows = [
        row("nothing_wrong", fixed("flatout", None, (), 60.0)),
        row("short_epochs", fixed("train-doctor", 1.5, ("workers",), 90.0)),
        row("short_epochs", fixed("flatout", None, (), 9.0, "it failed")),
    ]
    text = parts.fix.page(rows, "2m", {})
    assert "| flatout | nothing kept | - | 1.0 |" in text and "| 1.50x | workers | 1.5 |" in text
    assert "| it failed | 0.1 |" in text
    assert all((FOLDER.parent / "tests/end_to_end/planted" / f"{name}.py").is_file() for name in parts.fix.SCRIPTS)
