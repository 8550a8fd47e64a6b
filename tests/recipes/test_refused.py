"""A refused training leaves its output folder as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.errors import TrainingFailed, UsageError
from flatout.recipes.refused import left_as_it_was


def begin(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("of the training")


def refused(folder: Path, *names: str) -> None:
    with left_as_it_was(folder):
        begin(folder, *names)
        raise UsageError("too few images")


def test_everything_that_was_made_is_removed(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        refused(tmp_path / "trainings" / "demo-1", "recipe.yaml", "classes.json")
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_before_and_other_trainings_stay(tmp_path: Path) -> None:
    begin(tmp_path / "trainings" / "demo-1", "mine.txt")
    for name in ("demo-1", "demo-2"):
        with pytest.raises(UsageError):
            refused(tmp_path / "trainings" / name, "recipe.yaml")
    assert [path.name for path in tmp_path.rglob("*")] == ["trainings", "demo-1", "mine.txt"]


def test_what_somebody_adds_meanwhile_stays(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        refused(tmp_path / "run", "recipe.yaml", "notes.txt")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_training_that_saved_a_checkpoint_keeps_its_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        refused(tmp_path / "run", "last.ckpt", "recipe.yaml")
    assert len(list((tmp_path / "run").iterdir())) == 2


def test_a_training_that_failed_keeps_its_folder(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed), left_as_it_was(tmp_path / "run"):
        begin(tmp_path / "run", "metrics.csv")
        raise TrainingFailed("the loss is NaN")
    assert (tmp_path / "run" / "metrics.csv").exists()
