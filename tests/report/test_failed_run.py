"""A training that failed says so in every form of its report: the figures alone look like those of a success."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flatout.compare.comparison import Comparison
from flatout.compare.ratio import ratio_of
from flatout.compare.speed import measure
from flatout.diagnosis import diagnose
from flatout.record import list_runs, load_run
from flatout.report.comparison import notes, to_dict
from flatout.report.html.writing import write_run
from flatout.report.json_report import diagnosis_from_json, render_json
from flatout.report.markdown import render_markdown
from flatout.report.runs import table
from flatout.report.terminal import render
from tests.live.test_growing_steps import recorded


def ended(folder: Path, stop: str, exit_code: int | None) -> Path:
    run = recorded(folder)
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "stop": stop, "exit_code": exit_code}))
    return run


@pytest.mark.parametrize(
    ("exit_code", "said"),
    [
        (1, "the command failed (exit code 1)"),
        (137, "the command was ended by SIGKILL (exit code 137)"),
        (255, "the command failed (exit code 255)"),  # no signal has the number 127
    ],
)
def test_a_failure_stands_below_the_verdict_in_every_form(tmp_path: Path, exit_code: int, said: str) -> None:
    path = ended(tmp_path / "runs", "failed", exit_code)
    run = load_run(path)
    diagnosis = diagnose(run)
    sentence = f"{said}: the figures are of what it did until then"
    text = " ".join(render(diagnosis).plain.split())
    assert text.startswith(f"{diagnosis.verdict} T{sentence[1:]}.") and text.count(said[1:]) == 1
    assert render_markdown(diagnosis).index("until then") < render_markdown(diagnosis).index("## ")
    report = json.loads(render_json(diagnosis))
    assert report["problems"][0] == report["run"]["failure"] == sentence
    assert (report["run"]["stop"], report["run"]["exit_code"]) == ("failed", exit_code)
    assert diagnosis_from_json(report) == diagnosis
    write_run(diagnosis, run, tmp_path / "report.html", force=False)
    assert "until then" in (tmp_path / "report.html").read_text()
    assert f"failed ({exit_code})" in table(list_runs(path.parent), now=datetime.now(UTC), width=80)[1]


@pytest.mark.parametrize(("stop", "exit_code"), [("finished", 0), ("steps", None), ("interrupted", None)])
def test_what_ended_as_it_should_is_no_failure(tmp_path: Path, stop: str, exit_code: int | None) -> None:
    diagnosis = diagnose(load_run(ended(tmp_path, stop, exit_code)))
    assert diagnosis.failure is None and diagnosis.problems == () and diagnosis.stop == stop


def test_a_comparison_names_the_run_that_failed(tmp_path: Path) -> None:
    a, b = measure(ended(tmp_path / "a", "finished", 0)), measure(ended(tmp_path / "b", "failed", 1))
    comparison = Comparison([a], [b], ratio_of([a], [b]))
    said = f"B: the command failed (exit code 1) in {b.run}, whose figures are of what it did until then."
    assert said in notes(comparison) and not any(note.startswith("A:") for note in notes(comparison))
    assert to_dict(comparison)["b"]["failures"] == ["the command failed (exit code 1)"]
