"""The data of a training: subsets, folds, classes, and what cannot be trained on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.recipes.datasets import ORIGINAL_INDICES_FILE, open_data, save_original_indices
from flatout.recipes.fitting import fit
from flatout.recipes.training import train_recipe
from tests.loader.photographs import make_class_folders
from tests.recipes.small_training import quiet, recipe


def test_a_subset_has_the_same_class_indices_in_training_and_validation(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "data.classes=2", "data.subset_seed=7")
    data = open_data(wanted)
    assert len(data.classes) == 2 and data.validation is not None
    everything = open_data(recipe(photographs)).classes
    save_original_indices(tmp_path, data)
    kept = json.loads((tmp_path / ORIGINAL_INDICES_FILE).read_text())
    assert kept == {name: everything.index(name) for name in data.classes}
    for source in (data.train, data.validation):
        assert {data.classes[s.label] for s in source.samples} == set(data.classes)
        assert all(s.key.startswith(data.classes[s.label]) for s in source.samples)


def test_validation_images_that_folds_do_not_use_are_said(photographs: Path, tmp_path: Path) -> None:
    said: list[str] = []
    wanted = recipe(photographs, "folds={count: 2}", "training.epochs=1")
    train_recipe(wanted, open_data(wanted), tmp_path / "run", report=said.append, show_progress=False)
    assert sum("data.validation: val is not used" in line for line in said) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["training.batch_size=500"], "500 × 1 process.* is more than the 72 training images"),
        (["model.weights=nowhere.pth"], "nowhere.pth: no such file"),
        (["data.classes=9"], "data.classes 9: there are only 3 classes"),
        (["data.train=nowhere"], "no such folder"),
        (["data.format=packed"], "no whole packed set"),
    ],
)
def test_what_cannot_be_trained_is_one_clear_line(
    photographs: Path, tmp_path: Path, more: list[str], said: str
) -> None:
    wanted = recipe(photographs, *more)
    with pytest.raises(UsageError, match=said):
        fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)


def test_classes_of_validation_that_training_lacks_are_named(tmp_path: Path) -> None:
    root = make_class_folders(tmp_path, 3, 6, 64)
    (root / "val/rocket3").mkdir(parents=True)
    (root / "val/rocket3/1.jpg").write_bytes(b"")
    (root / "train/coffee2").rename(root / "moved")
    with pytest.raises(UsageError, match="classes that training does not have: coffee2, rocket3"):
        open_data(recipe(root))


def test_a_subset_may_keep_the_indices_of_all_classes(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "data.classes=2", "data.subset_seed=7", "data.keep_indices=true")
    data = open_data(wanted)
    assert data.classes == open_data(recipe(photographs)).classes and data.validation is not None
    for source, indices in ((data.train, data.train_indices), (data.validation, data.validation_indices)):
        kept = {data.classes[source.samples[index].label] for index in indices}
        assert len(kept) == 2 and all(
            source.samples[index].key.startswith(data.classes[source.samples[index].label]) for index in indices
        )
    order = tmp_path / "map.txt"
    order.write_text("rocket9\ncoffee2\nastronaut0\nchelsea1\n")
    mapped = open_data(recipe(photographs, f"data.class_map={order}"))
    assert mapped.classes == ("rocket9", "coffee2", "astronaut0", "chelsea1")
    assert {mapped.classes[s.label] for s in mapped.train.samples} == {"coffee2", "astronaut0", "chelsea1"}
    order.write_text("coffee2\nchelsea1\n")
    with pytest.raises(UsageError, match=r"classes that data\.class_map does not have: astronaut0"):
        open_data(recipe(photographs, f"data.class_map={order}"))


def test_an_absolute_part_of_the_data_stands_alone(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(tmp_path, f"data.train={photographs}/train", f"data.validation={photographs}/val")
    assert len(open_data(wanted).train_indices) == 72


def test_a_training_with_views_of_each_image_counts_images_once(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(
        photographs, "training.loss=jsd", "training.splits=3", "images.policy=augmix", "training.clip_gradients=0.01",
        "training.clip_mode=agc", "training.epochs=2", "schedule.cycles=2", "training.accumulate=2",
    )  # fmt: skip
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    assert [record.samples for record in done.records] == [64, 64] and done.metrics["val/loss"] > 0
