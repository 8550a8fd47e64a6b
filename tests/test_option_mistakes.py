"""Every option of every command with values that nobody means: one line, no traceback, nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from flatout.cli import app, main

VALUES = {
    "empty": "",
    "a word": "wrong",
    "negative": "-3",
    "zero": "0",
    "NaN": "nan",
    "infinite": "inf",
    "huge": "9" * 400,
    "control characters": "\x1b]0;x\x07\u202e",
    "long": "x" * 5000,
    "nowhere": "/nonexistent/folder/file",
    "a file": "a-file",
    "a folder": "a-folder",
    "below a file": "a-file/inside",
    "not utf-8": os.fsdecode(b"\xff\xfe"),
    "a null": "a\0b",
}
# What stands for a command's own arguments: nothing that exists, so that no work begins.
ARGUMENTS = {
    "profile": ["--", "no-such-program"], "ceilings": ["--", "no-such-program"], "memory": ["--", "no-such-program"],
    "fix": ["--", "no-such-program"], "try": ["--", "no-such-program"],
    "batch-size": ["--", "no-such-program"], "apply": ["--", "no-such-program"],
    "cache": ["a-folder", "cached", "--", "no-such-program"],
    "calibration": [], "compare": ["no-run-a", "no-run-b"], "report": ["no-run"], "explain": ["no-cause"], "runs": [],
    "trace": ["no-run"], "watch": ["no-run"], "read": ["no-log"], "plan": ["no-run"],
    "stage": ["/nonexistent/source", "target"], "mount": ["nonexistent-bucket", "/nonexistent/folder"],
    "agents": [], "mcp": ["--root", "no-folder"],
    "unmount": ["/nonexistent/folder"], "storage": ["/nonexistent/folder"], "recipes": ["no-recipe"],
    "train": ["no-recipe"], "lr-find": ["no-recipe"], "infer": ["no-training"],
}  # fmt: skip
COMMANDS = typer.main.get_command(app)
REQUIRED = {"plan": ["--deadline", "1m", "--epochs", "3"], "infer": ["--data", "a-folder", "--output", "o.csv"]}


@pytest.fixture(autouse=True)
def _built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands are built in each process, not in each of some two thousand calls."""
    monkeypatch.setattr(typer.main, "get_command", lambda _: COMMANDS)


def valued_options() -> Iterator[tuple[str, str]]:
    """(command, option) of each option that takes a value."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.is_flag:
                yield name, parameter.opts[0]


def test_every_command_is_covered() -> None:
    assert set(ARGUMENTS) == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option"), list(valued_options()), ids=lambda value: value)
def test_a_value_that_nobody_means_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("mine")
    (tmp_path / "a-folder").mkdir()
    required = REQUIRED.get(command, [])
    if option in required:
        place = required.index(option)
        required = required[:place] + required[place + 2 :]
    for meaning, value in VALUES.items():
        code = main([command, *required, option, value, *ARGUMENTS[command]])
        out, err = capfd.readouterr()
        said = f"{meaning}: exit {code}: {err}{out}"
        assert "Traceback" not in err and "fault of flatout" not in err, said
        # What is allowed goes on to what does not exist, or has nothing to list.
        assert code in (2, 126, 127) or (command in ("runs", "agents") and code == 0), said
        assert code == 0 or len(err.splitlines()) == 1, said
        assert len(err) < 1000, said
        assert not (set(err) & {"\x1b", "\x07", "\u202e"}), said
        # Journals and locks are flatout's own.
        left = {path.name for path in tmp_path.iterdir()} - {"a-file", "a-folder", ".flatout"}
        assert not left, f"{meaning} left {left}"
        assert (tmp_path / "a-file").read_text() == "mine" and not list((tmp_path / "a-folder").iterdir()), said


@pytest.mark.parametrize("name", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("command", ["report", "explain", "train", "infer", "unmount"])
def test_a_name_that_nobody_means_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("mine")
    (tmp_path / "a-folder").mkdir()
    code = main([command, *REQUIRED.get(command, []), "--", name])
    out, err = capfd.readouterr()
    said = f"exit {code}: {err}{out}"
    assert "Traceback" not in err and "fault of flatout" not in err, said
    assert code == 2 and len(err.splitlines()) == 1 and len(err) < 1000, said


@pytest.mark.parametrize("command", ["profile", "ceilings", "memory"])
def test_an_empty_folder_of_runs_does_not_mean_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, "--runs-dir", "", "--", "true"]) == 2
    assert "--runs-dir is empty: name a file or folder" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("budget", ["0", "-5", "nan", "inf", "0s"])
def test_a_budget_that_is_no_time_is_refused_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], budget: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fix", "--budget", budget, "--", "true"]) == 2
    said = capfd.readouterr().err
    assert said.startswith("flatout: --budget") and budget in said and "--seconds" not in said
    assert not list(tmp_path.iterdir())


def test_an_empty_option_of_the_users_own_command_is_its_own_affair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "no-such-program", "--runs-dir", ""]) == 127
    assert "is empty" not in capfd.readouterr().err
