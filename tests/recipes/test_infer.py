"""``flatout infer`` writes one row of class probabilities for each image, by a run of ``flatout train``."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from flatout.cli import main
from tests.loader.photographs import make_class_folders
from tests.recipes.small_training import TINY


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of one epoch, and the photographs that it saw."""
    folder = tmp_path_factory.mktemp("trained")
    photographs = make_class_folders(folder / "data", 3, 24, 64)
    settings = [word for setting in (*TINY, "training.epochs=1") for word in ("--set", setting)]
    words = ["train", "demo", "--data", str(photographs), *settings, "--quiet", "--no-record"]
    assert main([*words, "--output", str(folder / "run")]) == 0
    return folder / "run", photographs


@pytest.mark.slow
def test_each_image_gets_one_row_of_probabilities_that_add_up_to_one(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, photographs = trained
    images = sorted(photographs.rglob("*.jpg"))
    assert main(["infer", str(run), "--data", str(photographs), "--output", str(tmp_path / "table.csv"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    head, body = rows[0], rows[1:]
    assert (said["images"], said["models"], said["classes"]) == (len(images), 1, 3)
    assert len(head) == 4
    assert len(body) == len(images) == len({row[0] for row in body})
    for row in body:
        probabilities = [float(value) for value in row[1:]]
        assert all(0.0 <= value <= 1.0 for value in probabilities)
        assert sum(probabilities) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_the_same_run_gives_the_same_table(trained: tuple[Path, Path], tmp_path: Path) -> None:
    run, photographs = trained
    for name in ("a.csv", "b.csv"):
        assert main(["infer", str(run), "--data", str(photographs), "--output", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


@pytest.mark.slow
def test_an_image_that_cannot_be_decoded_is_named_and_can_be_passed_over(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = trained
    images = make_class_folders(tmp_path / "images", 1, 3, 64)
    bad = next(iter(images.rglob("*.jpg")))
    bad.write_bytes(b"no picture")
    words = ["infer", str(run), "--data", str(images), "--output", str(tmp_path / "table.csv")]
    assert main(words) == 1
    assert bad.name in capsys.readouterr().err
    assert not (tmp_path / "table.csv").exists()
    assert main([*words, "--skip-bad", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["undecodable"]) == 1
    assert bad.name in said["undecodable"][0]


def test_a_folder_without_a_training_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", str(tmp_path), "--data", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path) in said.replace("\n", "")
    assert "Traceback" not in said
