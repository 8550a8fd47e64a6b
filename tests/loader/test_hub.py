"""Hugging Face data sets as images: read without decoding, by threads, with the classes that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.errors import UsageError
from flatout.loader.sources.hub import HubSource, is_saved
from flatout.recipes.datasets import open_data, open_test
from flatout.recipes.fitting import fit
from tests.loader.photographs import make_class_folders
from tests.recipes.small_training import quiet, recipe

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_class_folders(tmp_path_factory.mktemp("photographs"), 3, 12, 48)


@pytest.fixture(scope="module")
def saved(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same photographs, written by the library itself."""
    root = tmp_path_factory.mktemp("saved") / "set"
    datasets.disable_progress_bars()
    names = sorted(path.name for path in (folders / "train").iterdir())
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=names))
    made = {}
    for part in ("train", "val"):
        files = sorted((folders / part).rglob("*.jpg"))
        rows = {
            "image": [{"bytes": path.read_bytes(), "path": None} for path in files],
            "label": [names.index(path.parent.name) for path in files],
        }
        made[part] = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict(made).save_to_disk(str(root))
    return root


def test_a_saved_data_set_has_the_bytes_and_classes_of_the_files(folders: Path, saved: Path, tmp_path: Path) -> None:
    plain, ours = open_data(recipe(folders)), open_data(recipe(saved))
    assert ours.classes == plain.classes and ours.counts == plain.counts
    assert [sample.label for sample in ours.train.samples] == [sample.label for sample in plain.train.samples]
    assert [ours.train.read(n) for n in (0, 5, 35)] == [plain.train.read(n) for n in (0, 5, 35)]
    assert ours.train.locate(5).endswith("train: row 5")
    done = fit(recipe(saved, "training.epochs=1"), ours, tmp_path / "run", report=quiet, show_progress=False)
    assert done.best is not None
    subset = open_data(recipe(saved, "data.classes=2", "data.subset_seed=7"))
    assert len(subset.train.samples) == 24 and len(subset.classes) == 2
    assert [sample.label for sample in open_test(str(saved / "val")).samples] == [-1] * len(ours.validation_indices)


def test_a_data_set_of_the_hub_is_opened_by_name_and_split(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    asked: list[Any] = []

    def load(name: str, split: str) -> Any:
        asked.append((name, split))
        return datasets.load_from_disk(str(saved / split))

    monkeypatch.setattr(datasets, "load_dataset", load)
    data = open_data(recipe(Path("unused"), "data.root=hf://somebody/flowers"))
    assert set(asked) == {("somebody/flowers", "train"), ("somebody/flowers", "val")} and len(data.classes) == 3
    with pytest.raises(UsageError, match=r"data\.format: csv: hf://somebody/flowers/train is a Hugging Face data set"):
        open_data(recipe(Path("unused"), "data.root=hf://somebody/flowers", "data.format=csv", "data.labels=t.csv"))


def test_what_cannot_be_read_is_one_line(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no column 'picture': it has image, label: set data\.image_column"):
        open_data(recipe(saved, "data.image_column=picture"))
    with pytest.raises(UsageError, match=r"holds the splits train, val: name one with data\.train"):
        HubSource(str(saved))
    with pytest.raises(UsageError, match="cannot be opened as a Hugging Face data set"):
        HubSource(str(tmp_path))
    unlabelled = datasets.Dataset.from_dict({"image": [b"x", b"y"], "label": [3, None]})
    unlabelled.save_to_disk(str(tmp_path / "part"))
    assert is_saved(tmp_path / "part")
    with pytest.raises(UsageError, match="row 1: label is None: give one class for each image"):
        HubSource(str(tmp_path / "part"))
