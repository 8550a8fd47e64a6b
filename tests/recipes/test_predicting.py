"""Predictions of trained models: as good as they were scored, averaged, and of every image asked for."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from flatout.errors import UnreadableImage, UsageError
from flatout.loader.interfaces import Sample
from flatout.recipes.datasets import open_data, open_test
from flatout.recipes.fitting import fit
from flatout.recipes.predicting import find_trained, ids_of, predict
from flatout.recipes.training import train_recipe
from tests.loader.photographs import make_class_folders
from tests.recipes.small_training import quiet, recipe


@pytest.mark.parametrize("more", [[], ["training.ema_decay=0.5"]])
def test_a_checkpoint_predicts_as_well_as_it_was_scored(photographs: Path, tmp_path: Path, more: list[str]) -> None:
    wanted = recipe(photographs, "training.epochs=2", "optimizer.lr=0.01", *more)
    data = open_data(wanted)
    done = fit(wanted, data, tmp_path / "run", report=quiet, show_progress=False)
    assert data.validation is not None and done.best_epoch is not None
    found = predict(find_trained(tmp_path / "run"), data.validation).probabilities.argmax(1)
    right = np.mean([place == sample.label for place, sample in zip(found, data.validation.samples, strict=True)])
    assert right == pytest.approx(done.metrics["val/acc1"])
    assert all(np.isfinite(r.metrics["val/loss"]) for r in done.records)


@pytest.mark.slow
def test_predictions_are_probabilities_and_average_the_folds(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "data.validation=null", "folds={count: 2}", "training.epochs=1")
    data = open_data(wanted)
    done = train_recipe(wanted, data, tmp_path / "run", report=quiet, show_progress=False)
    assert "val/acc1 mean" in done.metrics
    trained = find_trained(tmp_path / "run")
    assert len(trained) == 2
    both = predict(trained, data.train).probabilities
    assert both.shape == (72, 3) and np.allclose(both.sum(1), 1)
    each = [predict([one], data.train).probabilities for one in trained]
    assert np.allclose(both, (each[0] + each[1]) / 2)
    with (tmp_path / "run/out_of_fold.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 72
    other = recipe(make_class_folders(tmp_path / "fewer", 3, 20, 64), "data.validation=null", "folds={count: 2}")
    with pytest.raises(UsageError, match="a split of other images"):
        train_recipe(other, open_data(other), tmp_path / "run", report=quiet, show_progress=False)


def test_a_checkpoint_of_another_model_is_refused(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "training.epochs=1")
    fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    other = recipe(photographs, "model.name=test_byobnet")
    with pytest.raises(UsageError, match=r'model.name was "test_resnet" and is "test_byobnet" now: this cannot change'):
        fit(other, open_data(other), tmp_path / "run", resume=True, report=quiet, show_progress=False)


def test_images_that_cannot_be_predicted_have_equal_probabilities_and_the_rest_a_submission(
    photographs: Path, tmp_path: Path
) -> None:
    test = Path(shutil.copytree(photographs / "val", tmp_path / "test"))
    (test / "astronaut0/000.jpg").write_bytes(b"no image")
    wanted = recipe(photographs, f"data.test={test}", "data.id_column=image", "training.epochs=1")
    skipping = wanted.model_copy(update={"data": wanted.data.model_copy(update={"bad_files": "skip"})})
    said: list[str] = []
    run = tmp_path / "run"
    train_recipe(skipping, open_data(skipping), run, report=said.append, show_progress=False)
    with (run / "submission.csv").open(newline="") as file:
        rows = {row["image"]: row for row in csv.DictReader(file)}
    assert len(rows) == 24 and "astronaut0/000" in rows  # names alone are there once for each class
    bad = rows.pop("astronaut0/000")
    assert [float(value) for name, value in bad.items() if name != "image"] == pytest.approx([1 / 3] * 3, abs=1e-6)
    assert all(len({value for name, value in row.items() if name != "image"}) > 1 for row in rows.values())
    assert any("1 could not be decoded and have equal probabilities" in line for line in said)
    with pytest.raises(UnreadableImage, match=r"000\.jpg"):
        predict(find_trained(run), open_test(str(test)), skip_bad=False)
    mirrored = predict(find_trained(run), open_test(str(test)), mirrored=True).probabilities
    assert np.allclose(mirrored.sum(1), 1)


def test_ids_are_as_short_as_they_can_be_and_never_the_same() -> None:
    def ids(*keys: str) -> list[str]:
        return ids_of(SimpleNamespace(samples=[Sample(key, 0) for key in keys]))  # type: ignore[arg-type]

    assert ids("a/1.jpg", "b/2.jpg") == ["1", "2"]
    assert ids("a/1.jpg", "b/1.jpg") == ["a/1", "b/1"]
    assert ids("a/1.jpg", "a/1.png") == ["a/1.jpg", "a/1.png"]
