"""The gain of a change, from blocks of steps in a hand-made record."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.measure.experiments import Experiments, read_experiments
from flatout.measure.last_steps import read_last_steps
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.record.synthetic import ProcessBuilder, RunBuilder, ns


def block(main: ProcessBuilder, change: str, step_s: float, steps: int = 8, collected_s: float = 0.0) -> float:
    """A block after the window; returns its start."""
    start = main.now_s
    main.spend(kinds.EXPERIMENT, steps * step_s, main.text(change) if change else 0, steps, ns(steps * step_s))
    main.emit(kinds.COLLECTION, start, main.now_s, 0, ns(collected_s), int(collected_s > 0))
    return start


def read(run: RunBuilder) -> Experiments:
    return read_experiments(load_run(run.write()).processes[0])


def alternating(main: ProcessBuilder, change: str, unchanged_s: float, changed_s: list[float]) -> None:
    for step_s in changed_s:
        block(main, "", unchanged_s)
        block(main, change, step_s)
    block(main, "", unchanged_s)


def test_the_gain_is_the_median_of_the_blocks_against_their_neighbours(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    alternating(run.process(), "anomaly_mode", 0.031, [0.012, 0.011, 0.013, 0.012, 0.012, 0.012, 0.060])
    one = read(run).tried["anomaly_mode"]
    assert (one.blocks, one.steps) == (7, 8)
    assert (one.unchanged_s, one.changed_s) == (pytest.approx(0.031), pytest.approx(0.012))
    assert one.gain == pytest.approx(1 - 12 / 31, abs=1e-6)
    assert one.proven  # one disturbed block of seven proves nothing against it


def test_a_training_without_steps_after_its_window_says_why(tmp_path: Path) -> None:
    bare = RunBuilder(tmp_path / "bare")
    bare.process()
    process = load_run(bare.write()).processes[0]
    assert read_experiments(process).because == "no steps were measured after the window"
    assert read_experiments(process, "it finished").because == "it finished"
    assert read_last_steps(process, "it finished").not_doubled == "it finished"
    run = RunBuilder(tmp_path / "run")
    alternating(run.process(), "anomaly_mode", 0.031, [0.012, 0.011])
    assert read_experiments(load_run(run.write()).processes[0], "it finished").skipped is None


def test_a_drift_of_the_machine_is_no_gain(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for number in range(7):
        block(main, "", 0.010 + 0.002 * number)
        block(main, "threads=1", 0.011 + 0.002 * number)
    block(main, "", 0.024)
    one = read(run).tried["threads=1"]
    assert one.gain == pytest.approx(0.0, abs=1e-6) and not one.proven


@pytest.mark.parametrize("steps_s", [[0.010, 0.010, 0.011, 0.009, 0.033, 0.034, 0.010], [0.010, 0.010, 0.010, 0.040]])
def test_blocks_that_disagree_prove_nothing(tmp_path: Path, steps_s: list[float]) -> None:
    run = RunBuilder(tmp_path)
    alternating(run.process(), "tracemalloc", 0.012, steps_s)
    assert not read(run).tried["tracemalloc"].proven


def test_three_blocks_are_no_measurement(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    alternating(run.process(), "tracemalloc", 0.012, [0.001, 0.001, 0.001])
    assert not read(run).tried


def test_one_block_that_is_far_slower_shows_that_there_is_no_gain(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    alternating(run.process(), "threads=2", 0.012, [0.8])
    one = read(run).tried["threads=2"]
    assert one.gain < -10 and not one.proven


def test_hooks_and_collections_are_parts_of_the_steps_that_they_were_timed_in(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    block(main, "", 0.010, steps=10, collected_s=0.020)
    start = block(main, "hooks", 0.012, steps=10, collected_s=0.1)
    main.emit(kinds.HOOK, start, main.now_s, main.site(7, "def log(…):"), ns(0.050), 100)
    main.emit(kinds.HOOK, start, main.now_s, main.site(9, "def other(…):"), ns(0.010), 10)
    found = read(run)
    assert found.hooks_share == pytest.approx(0.5)
    assert [(line.line, line.seconds) for line in found.hooks] == [(7, pytest.approx(5e-3)), (9, pytest.approx(1e-3))]
    assert found.collector_share == pytest.approx(0.2) and found.collections == pytest.approx(0.1)
    assert found.steps == 10 and not found.tried


def test_a_record_without_any_says_why(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    run.process(experiments_skipped="2 ranks have to stay in step", debugging={"profiler": ""})
    found = read(run)
    assert found.because == "2 ranks have to stay in step" and found.debugging == {"profiler": ""}
    assert found.hooks_share is None and found.collector_share is None
