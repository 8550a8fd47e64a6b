"""What the runs of a fix measure, and the time that a proof needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.compare.ratio import Ratio
from flatout.runner import Bounds
from flatout.trials.budget import Budget
from flatout.trials.fix_options import Options
from flatout.trials.fix_runs import FixRuns
from flatout.trials.isolation import NAMESPACE, Isolation
from flatout.trials.progress import ProgressLog
from flatout.trials.sequential import MOST_PAIRS
from flatout.trials.trial_run import TrialSetup

COMMAND = ("python", "train.py")


def planned(error: float, *, start_s: float = 9.0, total_s: float = 600.0, fixed_s: float | None = None) -> float:
    """Measured time of a run, after a look at 20 s of steps of 0.06 s."""
    budget = Budget(total_s, lambda: 0.0)
    return budget.plan_runs(20.0 + start_s, 20.0, 0.06, fixed_s, error)


def test_where_steps_vary_runs_measure_longer_but_no_longer_than_they_start() -> None:
    assert planned(0.01) == planned(0.0) == pytest.approx(80 * 0.06)
    assert planned(0.018) == pytest.approx(20 * 0.36)
    assert planned(0.1) == 9.0
    assert planned(0.1, start_s=2.0) == planned(0.0)
    assert planned(0.1, start_s=60.0) == 30.0
    assert planned(0.1, fixed_s=5.0) == 5.0
    assert planned(0.1, total_s=60.0) < 9.0  # six runs have to fit


def needed(tmp_path: Path, ratio: Ratio) -> str:
    setup = TrialSetup(COMMAND, tmp_path, tmp_path / "runs", Bounds(seconds=10.0), Isolation(NAMESPACE))
    runs = FixRuns(setup, Options(), ProgressLog(True), lambda *_: pytest.fail("run"), lambda: 0.0)
    runs.budget.run_s = 15.0
    return runs.needs(ratio, 40.0)


def test_the_time_that_a_proof_needs_is_said_as_options_that_give_it(tmp_path: Path) -> None:
    one = needed(tmp_path, Ratio(1.5, 1.0, 2.2, 1))
    assert one.startswith("needs about ") and "--budget" in one and "--seconds" not in one
    # More pairs than a trial makes at most: only longer runs help.
    assert needed(tmp_path, Ratio(1.2, 1.0, 1.45, MOST_PAIRS)).startswith("needs longer runs: --seconds 15s --budget ")
