"""The HTML page of a run: what is in the file, without a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.cli import main
from flatout.diagnosis import diagnose
from flatout.export.run_tracks import run_timeline
from flatout.record import load_run
from flatout.report.html import run_data as data_module
from flatout.report.html.page import packed, page, unpacked
from flatout.report.html.run_data import run_data
from flatout.report.html.thinning import COLUMNS, lanes_of, thinned
from flatout.report.json_report import diagnosis_to_json
from tests.export.test_run_tracks import trained
from tests.record.rich import rich_run
from tests.record.synthetic import RUN_START_NS, RunBuilder, ns

HOSTILE = "</script><script>alert(1)</script><!--code-->\u202e\u2028'\"&"


def data_in(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', path.read_text("utf-8"))
    assert found is not None
    return unpacked(found[1])  # type: ignore[no-any-return]


def test_the_page_holds_the_report_as_its_json_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = rich_run(tmp_path), tmp_path / "page.html"
    assert main(["report", str(run), "--html", "-o", str(out)]) == 0
    assert "page.html" in capsys.readouterr().out
    assert main(["report", str(run), "--json"]) == 0
    assert data_in(out)["report"] == json.loads(capsys.readouterr().out)
    assert out.stat().st_size < 400 << 10


def test_nothing_in_the_page_can_be_loaded_from_elsewhere() -> None:
    text = page("t", "run.js", {}, "plain")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None and policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r"https?://|src=|@import|url\(", text)


def test_what_a_run_contains_stays_data(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(rich_run(tmp_path, mark=HOSTILE)), "--html", "-o", str(out)]) == 0
    text = out.read_text("utf-8")
    assert text.count("<script") == 2 and text.count("</script>") == 2 and "alert(1)</script>" not in text
    assert "&lt;script&gt;" in text  # in the plain text for readers without JavaScript
    assert HOSTILE in json.dumps(data_in(out)["report"]["run"]["command"], ensure_ascii=False).replace('\\"', '"')


def test_numbers_that_json_lacks_are_null() -> None:
    assert unpacked(packed({"a": float("nan"), "b": [float("inf"), 1.5]})) == {"a": None, "b": [None, 1.5]}


def test_a_saved_report_has_a_page_without_charts(tmp_path: Path) -> None:
    run, saved, out = rich_run(tmp_path), tmp_path / "r.json", tmp_path / "page.html"
    assert main(["report", str(run), "--json", "-o", str(saved)]) == 0
    assert main(["report", str(saved), "--html", "-o", str(out)]) == 0
    assert data_in(out)["lanes"] == [] and data_in(out)["report"] == json.loads(saved.read_text())
    shown = set(data_in(out)["confidence"].values())
    assert shown and shown <= {f"{at} confidence" for at in ("high", "medium", "low")}


def test_the_page_is_named_after_the_run_and_replaces_nothing_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(trained(tmp_path))
    assert main(["report", run, "--html"]) == 0
    assert (tmp_path / "synthetic.html").is_file()
    assert main(["report", run, "--html"]) == 2
    assert "synthetic.html exists" in capsys.readouterr().err
    assert main(["report", run, "--html", "--force"]) == 0
    assert main(["report", run, "--html", "--json"]) == 2
    assert main(["report", run, "--html", "-o", "nowhere/x.html"]) == 2


def test_steps_have_their_phases_and_slow_ones_are_marked(tmp_path: Path) -> None:
    run = load_run(trained(tmp_path))
    found = run_data(run, {})["steps"]
    assert found["number"] == list(range(6))
    assert found["parts"]["waiting"] == pytest.approx([0.17] * 6)
    assert found["parts"]["backward"] == pytest.approx([0.01] * 6)
    assert [sum(values) for values in zip(*found["parts"].values(), strict=True)] == pytest.approx(found["total"])


def test_many_steps_are_joined_to_bars_of_their_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = load_run(trained(tmp_path))
    whole = run_data(run, {})["steps"]
    monkeypatch.setattr(data_module, "MOST_STEPS", 3)
    found = run_data(run, {})
    assert found["steps"]["number"] == [0, 2, 4]
    assert found["steps"]["total"] == pytest.approx(np.reshape(whole["total"], (3, 2)).mean(1).tolist())
    assert found["steps"]["count"] == [2, 2, 2] and any("mean of up to 2 steps" in note for note in found["notes"])


def test_the_slowest_of_many_steps_keeps_its_duration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = RunBuilder(tmp_path)
    main = builder.process()
    loader = main.loader()
    main.iterate(loader)
    for step in range(100):
        main.step(loader, wait_s=2.0 if step == 41 else 0.01, backward_s=0.01, optimizer_s=0.01)
    main.end_pass(loader)
    monkeypatch.setattr(data_module, "MOST_STEPS", 20)
    found = run_data(load_run(builder.write()), {})
    steps, bar = found["steps"], found["steps"]["number"].index(41)
    assert steps["count"][bar] == 1 and steps["total"][bar] > 2.0 and steps["slow"][bar] == 1
    assert len(steps["number"]) <= 20 and sum(steps["count"]) == 100
    assert any("The 4 slowest steps have bars of their own" in note for note in found["notes"])


def test_the_longest_spans_are_kept_and_the_others_are_a_share_of_the_time(tmp_path: Path) -> None:
    run = load_run(trained(tmp_path))
    begin, finish = RUN_START_NS, RUN_START_NS + ns(4.0)
    raw = lanes_of(run_timeline(run, {}), begin, finish)
    whole, none_left = thinned(raw)
    assert none_left == 0 and all(not len(lane.rest) for lane in whole)
    lanes, left_out = thinned(raw, 10)
    assert sum(len(lane.start) for lane in lanes) == 10
    assert left_out == sum(len(lane.start) for lane in whole) - 10
    kept = min(int((lane.end - lane.start).min()) for lane in lanes if len(lane.start))
    assert sorted((lane.end - lane.start).tolist() for lane in whole)
    assert kept == sorted(int(n) for lane in whole for n in (lane.end - lane.start))[-10]
    for lane, all_of_it in zip(lanes, whole, strict=True):
        outer = all_of_it.depth == 0
        hidden = (all_of_it.end - all_of_it.start)[outer].sum() - (lane.end - lane.start)[lane.depth == 0].sum()
        assert float(lane.rest.sum()) * (finish - begin) / COLUMNS == pytest.approx(float(hidden), rel=1e-6, abs=1.0)


def test_workers_that_start_anew_share_a_lane(tmp_path: Path) -> None:
    timeline = run_timeline(load_run(trained(tmp_path)), {})
    again = replace(timeline, processes=(*timeline.processes, *timeline.processes[2:]))
    labels = [raw.label for raw in lanes_of(again, RUN_START_NS, RUN_START_NS + ns(4.0))]
    assert len(labels) == len(set(labels)) and "worker 0" in labels


def test_a_diagnosis_without_a_ledger_has_a_page_too(tmp_path: Path) -> None:
    run = load_run(trained(tmp_path))
    report = diagnosis_to_json(replace(diagnose(run), ledger=None))
    assert "plain text" in page("t", "run.js", run_data(run, report), "plain text")


def test_a_comparison_has_both_ledgers_in_seconds_for_as_many_samples(tmp_path: Path) -> None:
    a, b = (str(rich_run(tmp_path / name, id=name)) for name in "ab")
    out = tmp_path / "page.html"
    assert main(["compare", a, b, "--html", "-o", str(out)]) == 0
    found = data_in(out)
    side = found["sides"]["a"]
    assert side["whole_s"] == pytest.approx(found["amount"] / found["result"]["a"]["rate"])
    assert sum(account["seconds"] for account in side["accounts"]) == pytest.approx(side["whole_s"], rel=1e-6)
    for name in "ab":
        assert sum(found["steps"][name]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--html", "--json"], "--json and --html are both given"),
        (["-o", "x.html"], "only --html writes a file"),
        (["--html", "-o", "nowhere/x.html"], "there is no folder nowhere"),
    ],
)
def test_options_of_a_comparison_that_do_not_go_together_are_refused_first(
    capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    assert main(["compare", "no-run", "neither", *options]) == 2
    assert says in capsys.readouterr().err
