"""Steps of another kind than those of the window say nothing about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.measure.experiments import read_experiments
from flatout.measure.usual_steps import of_usual_steps, unusual
from flatout.probe import events as kinds
from flatout.record import load_run
from flatout.record.run import ProcessRecord
from tests.record.synthetic import RunBuilder, ns


def process_with(folder: Path, **steps: list[float]) -> ProcessRecord:
    run = RunBuilder(folder)
    main = run.process(usual_steps=steps, repeated_work={"skipped": "for a test"})
    main.spend(kinds.EXPERIMENT, 0.1, 0, 8, ns(0.1))
    (process,) = load_run(run.write()).processes
    return process


@pytest.mark.parametrize(
    "steps",
    [
        {},
        {"changed": [0.9, 0.9, 1]},
        {"changed": [0.1, 0.3, 9]},
        {"changed": [0.07, 0.2, 9]},
        {"traced": [0.1, 0.9, 9]},
        {"changed": [0.02, 0.9, 2]},
    ],
)
def test_usual_steps_and_those_of_trainings_without_a_common_kind_count(
    tmp_path: Path, steps: dict[str, list[float]]
) -> None:
    process = process_with(tmp_path, **steps)
    assert of_usual_steps(process) is process


def test_what_steps_of_another_kind_have_shown_is_left_out_and_said(tmp_path: Path) -> None:
    process = of_usual_steps(process_with(tmp_path, changed=[0.07, 0.9, 9], traced=[0.8, 0.9, 1]))
    assert read_experiments(process).because == "the steps after the window were of a kind that took 7.0% of its time"
    assert "repeated_work" not in process.info and not len(process.of_kinds(kinds.EXPERIMENT))
    assert unusual(process, "changed") and not unusual(process, "traced")
