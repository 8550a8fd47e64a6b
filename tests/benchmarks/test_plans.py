"""The benchmark of plans: recorded trainings are read back, and what is learnt from simulated ones is what they had."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from flatout.plans.drawing import RECORDED
from tests.plans.test_plan import simulated

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "plans"


@pytest.fixture
def plans_run() -> Iterator[ModuleType]:
    before, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("plans_run", FOLDER / "run.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            del sys.modules[name]


def test_a_recorded_training_is_read_back_as_it_was(plans_run: ModuleType, tmp_path: Path) -> None:
    whole = simulated(epochs=8)
    kept = {"epochs": 8, "queued": 0.02}
    packed = plans_run.record.packed(whole, kept)
    np.savez(tmp_path / "t.npz", **{f"one/{key}": value for key, value in packed.items()})
    (training,) = plans_run.load(tmp_path / "t.npz", 0.25)
    assert training.made == 8 and training.quiet
    assert training.whole.end_s == pytest.approx(whole.end_s, abs=1e-4)
    assert training.true_s == pytest.approx(whole.finish_s)


def test_simulated_trainings_are_predicted_and_quiet_ones_drift_little(plans_run: ModuleType, tmp_path: Path) -> None:
    found = {}
    for seed in range(6):
        packed = plans_run.record.packed(simulated(epochs=12, cold=1.0, seed=seed), {"epochs": 12, "queued": 0.0})
        found |= {f"training{seed}/{key}": value for key, value in packed.items()}
    np.savez(tmp_path / "t.npz", **found)
    trainings = plans_run.load(tmp_path / "t.npz", 0.2)
    assert plans_run.learn(trainings, plans_run.needed_scales(trainings)).drift < 0.05
    assert max(abs(one.error) for one in plans_run.score(trainings)) < 0.05


def test_what_plans_assume_is_what_the_recorded_trainings_had(plans_run: ModuleType) -> None:
    trainings = plans_run.load(FOLDER / "trainings.npz", 0.1)
    assert plans_run.learn(trainings, plans_run.needed_scales(trainings)) == RECORDED
