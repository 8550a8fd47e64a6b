"""The overhead benchmark: its arithmetic, its page, and that it refuses runs that would flatter a tool."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.probe.writer import EventFile

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "overhead"
VERSIONS = {"train-doctor": "0.2.0", "traceml-ai": "0.5.0"}
MODULES = ("tools", "runs", "added", "event_cost", "page")


@pytest.fixture
def parts() -> Iterator[SimpleNamespace]:
    """The benchmark's modules, which find each other by being in one folder."""
    both = [str(FOLDER), str(FOLDER.parent / "shared")]
    sys.path[:0] = both
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in (*MODULES, "rivals")})
    finally:
        sys.path[:] = [folder for folder in sys.path if folder not in both]
        for name in (*MODULES, "training", "rivals"):
            sys.modules.pop(name, None)


def readings(parts: Any, cell: Any, tool: str, steps_us: list[float]) -> list[Any]:
    """One reading a round; the mean step is 10 µs above the median."""
    return [
        parts.runs.Reading(tool, cell, number, step * 1e-6, (step + 10) * 1e-6, step * 1e-6, 700 << 20, 5000)
        for number, step in enumerate(steps_us)
    ]


def page(
    parts: Any, flatout: list[float], *, again: list[float] | None = None, rival: list[float] | None = None
) -> str:
    """The page of three rounds at 2 ms steps without workers; steps in µs."""
    cell = parts.runs.Cell(2.0, 0, 16, 1000)
    series = {"bare": [2000.0, 2100.0, 2200.0], "flatout": flatout, "bare, again": again, "train-doctor": rival}
    measured = {tool: steps for tool, steps in series.items() if steps is not None}
    all_readings = [reading for tool, steps in measured.items() for reading in readings(parts, cell, tool, steps)]
    costs = [parts.added.cost(all_readings, tool, cell) for tool in measured if tool != "bare"]
    spread = parts.added.Spread.of([900.0, 1000.0, 1100.0])
    results = parts.page.Results(
        costs, parts.event_cost.EventCost(spread, spread, spread, None), {"traceml-ai": "no network"}
    )
    conditions = parts.page.Conditions(
        "2 cores", "a processor", "6.1", "0.1", {"flatout": "1"}, "run.py", "today", 3, 3.0
    )
    return str(parts.page.markdown(conditions, results))


def goal(text: str) -> str:
    """The line of the goal of 50 µs a step."""
    return next(line for line in text.splitlines() if line.startswith("| at most 50 µs a step"))


def test_every_second_round_runs_backwards_and_then_another_tool_begins(parts: Any) -> None:
    rounds = ["".join(parts.runs.order("ABCD", number)) for number in range(9)]
    assert rounds == ["ABCD", "DCBA", "BCDA", "ADCB", "CDAB", "BADC", "DABC", "CBAD", "ABCD"]


def test_a_step_is_compared_with_the_bare_step_of_its_own_round(parts: Any) -> None:
    cell = parts.runs.Cell(2.0, 0, 16, 1000)
    bare = readings(parts, cell, "bare", [2000.0, 5000.0, 3000.0])
    tool = readings(parts, cell, "tool", [2030.0, 5010.0, 3020.0])
    cost = parts.added.cost(bare + tool, "tool", cell)
    added = cost.added_s
    assert [added.median, added.low, added.high] == pytest.approx([20e-6, 10e-6, 30e-6])
    assert cost.share == pytest.approx(20 / 3000)
    assert cost.record_bytes_per_1000_steps == 5000


def test_a_round_without_its_bare_run_is_left_out(parts: Any) -> None:
    cell = parts.runs.Cell(2.0, 0, 16, 1000)
    bare = readings(parts, cell, "bare", [2000.0])
    assert parts.added.cost(bare + readings(parts, cell, "tool", [2030.0, 9000.0]), "tool", cell).added_s.count == 1
    assert parts.added.cost(bare, "tool", cell) is None


@pytest.mark.parametrize(
    ("flatout", "verdict"),
    [
        ([2040.0, 2140.0, 2240.0], "| met "),
        ([2040.0, 2140.0, 2290.0], "met, but not in every repetition"),
        ([2070.0, 2170.0, 2270.0], "**not met**"),
    ],
)
def test_a_goal_is_judged_by_the_measured_figures(parts: Any, flatout: list[float], verdict: str) -> None:
    assert verdict in goal(page(parts, flatout, again=[2000.0, 2100.0, 2200.0]))


def test_no_goal_is_called_met_or_missed_where_bare_differs_from_bare_by_more(parts: Any) -> None:
    for flatout in ([2040.0, 2140.0, 2240.0], [2070.0, 2170.0, 2270.0]):
        line = goal(page(parts, flatout, again=[2080.0, 2180.0, 2280.0]))
        assert "not known: the machine was too noisy, bare differs from bare by 80 µs" in line
        assert "met" not in line


def test_a_row_that_flatout_loses_is_printed(parts: Any) -> None:
    text = page(parts, [2040.0, 2140.0, 2240.0], rival=[2010.0, 2110.0, 2210.0])
    assert "- 2 ms steps, 0 workers, median step: flatout +40 µs against +10 µs for train-doctor" in text
    assert "In no row." in page(parts, [2010.0, 2110.0, 2210.0], rival=[2040.0, 2140.0, 2240.0])


def test_an_absent_rival_is_said(parts: Any) -> None:
    text = page(parts, [2040.0, 2140.0, 2240.0])
    assert "- traceml-ai: not measured, because no network" in text
    assert "Not known: no rival was measured." in text


def test_without_a_virtual_environment_the_rivals_are_missing_with_the_reason(
    parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr(parts.rivals.venv, "create", refuse)
    environment = parts.rivals.prepare(tmp_path / "venv", VERSIONS)
    assert environment.python == sys.executable
    assert set(environment.missing) == {"train-doctor", "traceml-ai"}
    assert all("read-only file system" in because for because in environment.missing.values())


def test_a_rival_that_cannot_be_installed_is_missing_with_the_reason(
    parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {**VERSIONS, "traceml-ai": "not-a-version"}
    monkeypatch.setattr(parts.rivals, "_installed", lambda packages, name: {"train-doctor": "0.2.0"}.get(name))
    environment = parts.rivals.prepare(tmp_path / "venv", versions)
    assert environment.python == str(tmp_path / "venv" / "bin" / "python")
    assert list(environment.missing) == ["traceml-ai"]
    assert environment.missing["traceml-ai"].startswith("pip install traceml-ai==not-a-version failed: ERROR")


def test_steps_are_counted_in_the_records_that_the_tools_leave(parts: Any, tmp_path: Path) -> None:
    tools = {tool.name: tool for tool in parts.tools.TOOLS}
    run = tmp_path / "run"
    (run / "processes").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "events.1.jsonl").write_text('{"type": "meta"}\n{"type": "step", "i": 0}\n{"type": "step", "i": 1}\n')
    (run / "final_summary.json").write_text('{"step_time": {"metadata": {"training_total_steps": 3}}}')
    events: Any = EventFile
    file = events(str(run / "processes" / "1-1.events"))
    file.live(4, 4, 4, 0, 1, 2, 0, 0)
    file.abandon()
    assert tools["train-doctor"].recorded_steps(tmp_path) == 2
    assert tools["traceml-ai"].recorded_steps(tmp_path) == 3
    assert tools["flatout"].recorded_steps(tmp_path) == 4


def fake_tool(parts: Any, code: str, recorded: int) -> Any:
    """A tool whose command runs ``code`` with the training script's arguments."""
    return parts.tools.Tool(
        "fake", "", None, lambda python, script, folder: [python, "-c", code, *script], lambda folder: recorded
    )


RESULT = {"steps": 20, "median_s": 0.002, "mean_s": 0.002, "cpu_s": 0.002, "peak_rss_bytes": None}
WRITES_RESULT = f"import pathlib, sys; pathlib.Path(sys.argv[-1]).write_text('{json.dumps(RESULT)}')"


def run_fake(parts: Any, scratch: Path, code: str, recorded: int = 20) -> Any:
    cell = parts.runs.Cell(2.0, 0, 16, 20)
    return parts.runs.run_once(fake_tool(parts, code, recorded), cell, 0, sys.executable, scratch)


def test_a_run_is_read_and_its_folder_removed(parts: Any, tmp_path: Path) -> None:
    assert run_fake(parts, tmp_path, WRITES_RESULT).median_s == 0.002
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_tool_recorded_only_a_part_does_not_count(parts: Any, tmp_path: Path) -> None:
    with pytest.raises(parts.runs.RunFailed, match="recorded 12 of 20 steps"):
        run_fake(parts, tmp_path, WRITES_RESULT, recorded=12)


def test_a_failed_run_gives_its_last_line(parts: Any, tmp_path: Path) -> None:
    with pytest.raises(parts.runs.RunFailed, match="exit code 1: out of memory"):
        run_fake(parts, tmp_path, "raise SystemExit('out of memory')")
    with pytest.raises(parts.runs.RunFailed, match="wrote no result"):
        run_fake(parts, tmp_path, "pass")


def test_a_run_that_does_not_end_is_ended_with_its_children(
    parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts.runs, "START_WITHIN_S", 1.5)
    monkeypatch.setattr(parts.runs, "END_WITHIN_S", 0.2)
    stays = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with pytest.raises(parts.runs.RunFailed, match="had not ended"):
        run_fake(parts, tmp_path, stays)


def test_a_tool_that_fails_once_is_left_out_of_later_rounds(parts: Any, tmp_path: Path) -> None:
    tools = [fake_tool(parts, "raise SystemExit('broken')", 0)]
    found, failed = parts.runs.run_rounds(tools, parts.runs.Cell(2.0, 0, 16, 20), 3, sys.executable, tmp_path)
    assert found == []
    assert failed == {"fake": "it ended with exit code 1: broken"}


def test_the_width_is_the_one_whose_step_is_nearest_to_the_time_asked_for(
    parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = importlib.import_module("training")
    monkeypatch.setattr(training, "median_step_s", lambda width, target_s: 0.001 + 1e-6 * width**2)
    assert training.width_for(0.0026) == 40
    assert training.width_for(0.0001) == 2  # the narrowest that is tried


def test_the_training_times_each_step_and_its_cpu(parts: Any) -> None:
    training = importlib.import_module("training")
    durations, cpu = training.train(2, 0, 3, training.no_context)
    assert len(durations) == len(cpu) == 3
    assert min(durations) > 0


@pytest.mark.slow
def test_event_costs_are_measured_and_the_recorder_is_left_as_it_was(
    parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatout.probe.recorder import REC

    monkeypatch.setattr(parts.event_cost, "EVENTS", 50)
    before = REC.on, REC.emit
    cost = parts.event_cost.measure(tmp_path)
    assert cost.emit_ns.low > 0
    assert cost.wrapped_ns is not None
    assert (REC.on, REC.emit) == before
    assert list(tmp_path.iterdir()) == []
