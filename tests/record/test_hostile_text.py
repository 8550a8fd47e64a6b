"""Text of a record, of file names and of journals is printed harmlessly by every command that reads it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from flatout.cli import main
from tests.record.rich import rich_run

MARK = "\x1b]0;x\x07\u202e\x9b31m\u2028"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    runs = Path(".flatout/runs")
    runs.mkdir(parents=True)
    rich_run(runs, f"b{MARK}", MARK)
    rich_run(runs, "a", MARK)
    (runs / "a" / "processes" / f"x{MARK}.json").write_text("{}")
    info = json.loads((runs / "a" / "run.json").read_text())
    (runs / "a" / "run.json").write_text(json.dumps({**info, "stop": f"stop{MARK}", "started": f"2026{MARK}"}))
    rich_run(runs, "other-format", MARK)
    (runs / "other-format" / "run.json").write_text(json.dumps({**info, "format": f"2{MARK}", "id": f"c{MARK}"}))
    gain = {"predicted": 2.0, "low": 1.5, "high": 2.5}
    ratio = {"factor": 1.5, "low": 1.4, "high": 1.6, "pairs": 2}
    trial = {"remedy": "r", "title": f"do{MARK}", "semantic_class": "identical", "settings": {}, "predicted": gain,
             "outcome": f"kept{MARK}", "why": f"why{MARK}", "ratio": ratio}  # fmt: skip
    fix = Path(".flatout/fixes") / f"1{MARK}"
    fix.mkdir(parents=True)
    lines = [{"kind": "begin", "command": [f"python{MARK}"]}, {"kind": "trial", "trial": trial}]
    (fix / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs"],
        ["runs", "--json"],
        ["runs", "--runs-dir", f"none{MARK}"],
        ["report", "a"],
        ["report", "a", "--markdown"],
        ["report", "a", "--json"],
        ["report", f"b{MARK}"],
        ["report", f"b{MARK}", "--markdown"],
        ["report", "aa"],
        ["report", f"nothing{MARK}"],
        ["report", "other-format"],
        ["report", "a", "-o", f"no{MARK}/file"],
        ["compare", "a", f".flatout/runs/b{MARK}"],
        ["compare", "a", f".flatout/runs/b{MARK}", "--json"],
        ["compare", "a", f"c{MARK}"],
        ["explain", f"cause{MARK}"],
        ["calibration"],
        ["calibration", "--json"],
        ["calibration", "--fixes-dir", f"x{MARK}"],
        ["profile", "--", f"no-such{MARK}"],
        ["stage", f"/no-such{MARK}", "to"],
        ["storage", f"/no-such{MARK}"],
        ["unmount", f"/no-such{MARK}"],
        ["cache", f"/no-such{MARK}", "x", "--", "true"],
    ],
    ids=lambda arguments: re.sub(r"[^a-z -]", "", " ".join(arguments)),
)
def test_nothing_that_a_record_says_reaches_the_terminal_raw(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: Sequence[str]
) -> None:
    code = main(arguments)
    out, err = capfd.readouterr()
    assert out or err
    for text in (out, err):
        assert not UNSAFE.findall(text)
        assert "Traceback" not in text and "a fault of flatout" not in text
    assert code in (0, 1, 2, 127)


def test_names_that_are_not_utf_8_are_printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.rename(b".flatout/runs/a", b".flatout/runs/a\xff")
    for arguments in (["runs"], ["report", os.fsdecode(b"a\xff")], ["report", os.fsdecode(b"a\xff"), "--markdown"]):
        assert main(arguments) == 0
    assert "\\udcff" in capfd.readouterr().out
