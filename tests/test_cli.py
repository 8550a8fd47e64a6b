"""The command line: contents, exit codes, one line for each error, and the commands that read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer.main

from flatout import __version__, cli, record
from flatout.errors import CommandError, UsageError
from flatout.record import RUNS_FOLDER, Ending, RunEntry
from flatout.report.json_report import render_json
from flatout.report.runs import table
from flatout.results import Diagnosis
from tests.report import diagnoses

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs with one recorded run, whose diagnosis is the starved one."""
    folder = tmp_path / "runs"
    run = folder / "20261121-011500-a3f9"
    (run / "processes").mkdir(parents=True)
    started = {"id": run.name, "started": "2026-11-21T01:15:00+00:00", "start_ns": 0, "end_ns": 724_000_000_000}
    ended = {"command": ["python", "train.py"], "stop": "steps", "exit_code": 0}
    (run / "run.json").write_text(json.dumps({"format": 1, "flatout": "0.1.0", **started, **ended}))

    def made_before(loaded: record.Run) -> Diagnosis:
        assert loaded.id == run.name
        return diagnoses.starved()

    monkeypatch.setattr("flatout.diagnosis.diagnose", made_before)
    return folder


def test_help_is_a_table_of_contents_in_the_order_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    positions = [text.index(part) for part in ("Measure:", "profile", "Read:", "report", "runs", "Example:")]
    assert positions == sorted(positions)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "..." not in text.split("Measure:")[1]


def test_without_a_command_the_contents_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    bare = capsys.readouterr().out
    cli.main(["--help"])
    assert bare == capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"flatout {__version__}\n"


@pytest.mark.parametrize("command", sorted(getattr(typer.main.get_command(cli.app), "commands", {})))
def test_the_help_of_each_command_has_an_example_and_fits(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Example: flatout {command}" in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [(["reprt"], "report"), (["runs", "--jsn"], "--json"), (["profile", "--step", "3"], "--steps")],
)
def test_a_misspelt_name_gives_the_nearest_one_and_exit_code_2(
    arguments: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert nearest in captured.err
    assert captured.err.startswith("flatout: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("--seconds: wrong"), 2, "flatout: --seconds: wrong\n"),
        (CommandError("the command was killed\nby SIGKILL", 137), 137, "flatout: the command was killed by SIGKILL\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(32, "Broken pipe"), 1, ""),
        (UsageError("a\x1b]0;title\x07b"), 2, "flatout: a\\x1b]0;title\\x07b\n"),
        (OSError(28, "No space left on device", "/full/disk"), 2, "flatout: No space left on device: /full/disk\n"),
        (MemoryError(), 2, f"flatout: {cli.OUT_OF_MEMORY}\n"),
        (ImportError("libx.so: failed to map segment from shared object"), 2, f"flatout: {cli.OUT_OF_MEMORY}\n"),
    ],
)
def test_errors_become_one_line_and_their_exit_code(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(record, "list_runs", raising(error))
    assert cli.main(["runs"]) == code
    assert capfd.readouterr().err == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["profile", "--steps", "1e3", "--", "x"], "--steps is '1e3', but must be a whole number"),
        (["compare", "--pairs", "1", "a", "b"], "--pairs is '1', but must be a whole number from 2 to 100"),
        (["stage", "a", "b", "--classes", "0"], "--classes is '0', but must be a whole number of at least 1"),
    ],
)
def test_a_wrong_number_is_refused_with_what_is_allowed(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err == f"flatout: {said}\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("command", "code"), [("runs", 0), ("explain cpu_transform", 0), ("explain nothing_such", 2)])
def test_a_closed_stream_leaves_the_exit_code_as_it_is(tmp_path: Path, closed: str, command: str, code: int) -> None:
    line = f'exec "{sys.executable}" -m flatout {command} {closed}'
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "fault" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["runs", "explain cpu_transform", "explain", "--help"])
def test_a_full_standard_output_is_named(tmp_path: Path, command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "flatout", *command.split()],
            cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "flatout: standard output: No space left on device\n"


def test_a_fault_of_flatout_is_one_line_that_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "list_runs", raising(ValueError("first\nsecond")))
    assert cli.main(["runs", "--runs-dir", "x"]) == 70
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "ValueError: first (test_cli.py:" in said
    assert "`flatout --debug runs --runs-dir x`" in said
    assert cli.main(["--debug", "runs"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from flatout.cli import main; main(['--help']);"
        "sys.exit(','.join({'numpy', 'torch', 'rich', 'psutil'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_a_reader_that_goes_away_is_no_error(saved: Path) -> None:
    report = saved.parent / "report.json"
    report.write_text(render_json(diagnoses.starved()))
    reading, writing = os.pipe()
    os.close(reading)
    code = f"import sys; from flatout.cli import main; sys.exit(main(['report', {str(report)!r}, '--json']))"
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 1


def test_report_renders_the_latest_run_again(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--runs-dir", str(saved)]) == 0
    assert capsys.readouterr().out.startswith("The GPU waits for data 79% of the time")


def test_report_of_an_unknown_run_names_what_there_is(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "20261121-011500-a3f8", "--runs-dir", str(saved)]) == 2
    assert "20261121-011500-a3f9" in capsys.readouterr().err


def test_report_writes_a_file_once_and_again_only_with_force(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved.parent / "report.md"
    arguments = ["report", "--runs-dir", str(saved), "--markdown", "--output", str(file)]
    assert cli.main(arguments) == 0
    assert file.read_text("utf-8").startswith("# ")
    assert cli.main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert cli.main([*arguments, "--force"]) == 0


def test_report_reads_a_saved_json_report_without_the_run(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "report.json"
    file.write_text(render_json(diagnoses.healthy()))
    assert cli.main(["report", str(file), "--json"]) == 0
    assert capsysbinary.readouterr().out.decode() == file.read_text() + "\n"


def test_runs_as_json_has_whole_commands(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", "--json", "--runs-dir", str(saved)]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["id"] == "20261121-011500-a3f9"
    assert entry["command"] == ["python", "train.py"]
    assert entry["recorded_s"] == 724.0


def test_runs_lists_and_names_the_next_command(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", "--runs-dir", str(saved)]) == 0
    text = capsys.readouterr().out
    assert "12 min 4 s" in text
    assert text.endswith("Next: flatout report 20261121-011500-a3f9\n")


def test_no_runs_say_how_to_record_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert "flatout profile -- python train.py" in capsys.readouterr().out
    assert cli.main(["runs", "--runs-dir", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def entry(name: str, age: timedelta | None, **rest: Any) -> RunEntry:
    started = (NOW - age).isoformat() if age is not None else ""
    fields = {
        "command": ("python", "train.py"),
        "ending": Ending("finished", 0),
        "recorded_s": 61.0,
        "readable": True,
    }
    return RunEntry(name, Path(name), started, **{**fields, **rest})  # type: ignore[arg-type]


def test_the_table_of_runs_says_when_how_long_and_how_it_ended() -> None:
    lines = table(
        (
            entry("a", timedelta(days=3), ending=Ending("steps", None)),
            entry("b", timedelta(hours=2), ending=Ending("failed", 1)),
            entry("c", timedelta(minutes=5), ending=Ending(None, None), recorded_s=None),
            entry("d", None, command=(), ending=Ending(None, None), recorded_s=None, readable=False),
        ),
        now=NOW,
        width=80,
    )
    cells = [" ".join(line.split()) for line in lines[1:]]
    assert cells == [
        "a 3 d ago 1 min 1 s step bound python train.py",
        "b 2 h ago 1 min 1 s failed (1) python train.py",
        "c 5 min ago - not closed python train.py",
        "d - - unreadable -",
    ]


def test_only_the_command_of_a_run_is_shortened() -> None:
    long = ("python", "/very/" + "long/" * 40 + "train.py")
    lines = table((entry("20261121-011500-a3f9", timedelta(days=300), command=long),), now=NOW, width=80)
    assert all(len(line) <= 80 for line in lines)
    assert "20261121-011500-a3f9" in lines[1]
    assert lines[1].endswith("train.py")


def test_the_default_folder_is_the_one_that_runs_are_recorded_in(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["runs", "--help"])
    assert str(RUNS_FOLDER) in capsys.readouterr().out


@pytest.mark.parametrize("command", ["profile", "ceilings", "memory", "fix", "apply"])
def test_a_missing_training_command_is_told_with_the_command_that_misses_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    assert cli.main([command]) == 2
    assert f"such as `flatout {command} -- python train.py`" in capsys.readouterr().err
    assert cli.main([command, "--", "./train.py"]) == 126
    assert f"write `flatout {command} -- python ./train.py`" in capsys.readouterr().err
