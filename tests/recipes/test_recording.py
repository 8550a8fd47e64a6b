"""What a training records: its own end and name, and nothing where there is nothing to train."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import flatout.watching
from flatout.cli import main
from flatout.record import list_runs
from flatout.runner.folder import exclusive
from tests.recipes.small_training import TINY

pytestmark = pytest.mark.slow


def words(photographs: Path, folder: Path, *more: str) -> list[str]:
    settings = [word for setting in (*TINY, *more) for word in ("--set", setting)]
    return ["train", "demo", "--data", str(photographs), *settings, "--quiet", "--output", str(folder)]


def test_a_resume_of_a_finished_training_records_nothing(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded: list[str | None] = []

    @contextmanager
    def watch(name: str | None = None) -> Iterator[None]:
        recorded.append(name)
        yield

    monkeypatch.setattr(flatout.watching, "watch", watch)
    command = words(photographs, tmp_path / "run", "training.epochs=1")
    assert main(command) == 0
    assert recorded == ["demo"]
    assert main([*command, "--resume"]) == 0
    assert recorded == ["demo"]
    assert "trained already" in " ".join(capsys.readouterr().err.split())


def test_beside_a_training_that_is_recorded_another_one_trains(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with exclusive(tmp_path / ".flatout/runs"):
        assert main(words(photographs, tmp_path / "run", "training.epochs=1")) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "not recorded: another command of flatout (process" in said and "the training goes on" in said
    assert (tmp_path / "run" / "summary.json").is_file()


def test_a_training_that_was_stopped_before_its_first_checkpoint_resumes_and_starts(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, resume in enumerate((["--resume"], [])):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in ("recipe.yaml", "classes.json", "intensity.json", "original_indices.json", "steps.csv"):
            (folder / name).write_text("")  # whatever a kill left of it
        assert main([*words(photographs, folder, "training.epochs=1"), "--no-record", *resume]) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert ("was stopped before its first checkpoint: begins anew" in said) == bool(resume)
        assert (folder / "last.ckpt").is_file()


def test_an_interrupted_training_is_listed_as_interrupted_under_its_recipes_name(
    photographs: Path, tmp_path: Path
) -> None:
    command = words(photographs, tmp_path / "run", "training.epochs=500")
    child = subprocess.Popen(
        [sys.executable, "-m", "flatout", *command], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    while not (tmp_path / "run/last.ckpt").is_file():
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    said = child.communicate()[1].decode()
    assert child.returncode == 130 and "continue with" in said
    (entry,) = list_runs(tmp_path / ".flatout/runs")
    assert (entry.ending.stop, entry.ending.exit_code) == ("interrupted", 130)
    assert entry.id.endswith("-demo")
