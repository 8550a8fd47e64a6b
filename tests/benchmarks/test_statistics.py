"""The benchmark of statistics: a prior is found again, and trials are drawn and judged as the page says."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "statistics"


@pytest.fixture
def statistics_run() -> Iterator[ModuleType]:
    before, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("statistics_run", FOLDER / "run.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            del sys.modules[name]


def runs(seed: int, between: float, within: float = 0.05) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.normal(1, within, 60) * np.exp(between * draw.normal()) for _ in range(6)]


def test_the_recorded_step_times_are_of_twenty_trainings_with_six_runs(statistics_run: ModuleType) -> None:
    trainings = statistics_run.load(FOLDER / "step_times.npz")
    assert len(trainings) >= 20 and {len(found) for found in trainings.values()} == {6}
    assert (FOLDER / "step_times.npz").stat().st_size < 300_000


def test_the_prior_is_found_again(statistics_run: ModuleType) -> None:
    evidence = [statistics_run.between(runs(seed, 0.03)) for seed in range(12)]
    prior = statistics_run.fit(evidence)
    assert 0.02 < prior.median(0.01) < 0.05


def test_gains_are_kept_and_none_is_not(statistics_run: ModuleType) -> None:
    steady, prior = runs(1, 0.01), statistics_run.Prior(0.01, 0.0, 0.7)
    found = {gain: statistics_run.simulate(steady, gain, False, 20, prior) for gain in (1.0, 1.5)}
    assert found[1.5].now == 1.0 and found[1.0].now <= 0.05 and 2 <= found[1.5].pairs <= 3
    shares = {(name, gain, still): found[1.5] for name in ("x",) for gain in statistics_run.GOALS for still in (0, 1)}
    page = statistics_run.page({"x": steady}, shares, statistics_run.RECORDED, 20)
    assert "| 1x | all | at most 5% | 100.0%, missed |" in page and "| x | " in page
