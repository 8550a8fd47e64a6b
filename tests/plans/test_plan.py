"""Plans from synthetic records: costs, projected ends, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatout import cli
from flatout.plans.costs import Costs, measure_costs
from flatout.plans.scenarios import project
from flatout.record import load_run
from tests.record.synthetic import RunBuilder

COSTS = Costs(startup_s=10.0, step_s=0.1, error=0.05, steps=500, epoch_end_s=1.0, ending_s=0.0)


def recorded(folder: Path, epochs: int = 3, steps: int = 30) -> Path:
    run = RunBuilder(folder)
    process = run.process()
    process.pause(5.0)
    for _ in range(epochs):
        process.iterate(1)
        for _ in range(steps):
            process.step(1, wait_s=0.02, forward_s=0.03, backward_s=0.05)
        process.end_pass(1)
    return run.write()


def test_case_e_does_not_fit_and_the_plan_says_what_does() -> None:
    asked, fits, one = project(COSTS, 660.0, 5, 30, 20.0, 1.2)
    assert asked.in_time < 0.001 and asked.expected_s == pytest.approx(30 + 5 * 10 + 150 * 51 - 10)
    assert fits.conservative_s <= 660 and fits.in_time > 0.95 and fits.work < 0.1
    assert one.folds == 1 and one.epochs == 30 and one.price == pytest.approx(one.expected_s / 3600 * 1.2)


def test_costs_are_those_of_the_record(tmp_path: Path) -> None:
    costs = measure_costs(load_run(recorded(tmp_path)))
    assert costs.step_s == pytest.approx(0.1, rel=0.02) and costs.steps == 30
    assert costs.startup_s == pytest.approx(5.1, abs=0.05)


def test_the_command_prints_80_columns_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--deadline", "1m", "--folds", "5", "--epochs", "30", str(recorded(tmp_path))]
    assert cli.main(words) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scenarios"][0]["name"] == "asked for"
    assert cli.main([*words, "--price", "cheap"]) == 2
