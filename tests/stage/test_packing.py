"""Staging into packed sets: what a training reads from them is what lies in the folders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.loader.sources.folders import FolderSource
from flatout.loader.sources.packed import PackedSource
from flatout.recipes.datasets import open_data
from flatout.recipes.reading import read_recipe
from flatout.stage.bringing import Options
from flatout.stage.failures import Failure
from flatout.stage.names import state_folder
from flatout.stage.origins import Entry, FolderOrigin
from flatout.stage.packing import pack
from flatout.stage.selection import Selection
from flatout.stage.staging import StagingFailed
from tests.loader.photographs import make_class_folders


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_class_folders(tmp_path / "photographs", 4, 6, 64)


def test_splits_become_packed_sets_with_the_same_images_and_classes(root: Path, tmp_path: Path) -> None:
    (root / "train/readme.txt").write_text("no image")
    done = pack(FolderOrigin(root), tmp_path / "packed", Selection(splits=("train", "val")))
    assert (done.images, done.classes, done.splits) == (4 * 8, 4, ("train", "val"))
    for split in ("train", "val"):
        ours, theirs = PackedSource(tmp_path / "packed" / split), FolderSource(root / split)
        assert ours.samples == theirs.samples and ours.classes == theirs.classes
        assert all(ours.read(place) == theirs.read(place) for place in range(len(theirs.samples)))
    data = open_data(read_recipe("demo", [f"data.root={tmp_path / 'packed'}"]))
    assert isinstance(data.train, PackedSource) and len(data.classes) == 4


def test_a_draw_of_classes_is_the_same_in_every_split(root: Path, tmp_path: Path) -> None:
    pack(FolderOrigin(root), tmp_path / "packed", Selection(splits=("train", "val"), classes=2, seed=5))
    classes = {PackedSource(tmp_path / "packed" / split).classes for split in ("train", "val")}
    assert len(classes) == 1 and len(next(iter(classes))) == 2


def test_images_without_class_folders_can_be_predicted(root: Path, tmp_path: Path) -> None:
    pack(FolderOrigin(next((root / "val").iterdir())), tmp_path / "packed", Selection())
    assert {sample.label for sample in PackedSource(tmp_path / "packed", labelled=False).samples} == {-1}


class Breaking(FolderOrigin):
    """The last image cannot be read."""

    def read(self, entry: Entry, start: int = 0, length: int | None = None) -> bytes:
        if entry.key.endswith("003.jpg"):
            raise Failure("gone", f"{entry.key}: gone")
        return bytes(super().read(entry, start, length))


def test_what_cannot_be_read_leaves_nothing_behind(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StagingFailed, match=r"003\.jpg: gone: nothing of train was written"):
        pack(Breaking(root), tmp_path / "packed", Selection(splits=("train",)))
    assert not list((tmp_path / "packed").rglob("*.bin"))
    assert not list(state_folder(tmp_path / "packed").glob("packing-*"))


def test_a_packed_set_is_not_overwritten_and_nothing_selected_is_said(root: Path, tmp_path: Path) -> None:
    pack(FolderOrigin(root), tmp_path / "packed", Selection(splits=("val",)))
    with pytest.raises(UsageError, match="a packed set is there already"):
        pack(FolderOrigin(root), tmp_path / "packed", Selection(splits=("val",)))
    with pytest.raises(UsageError, match="--prune: a packed set is written whole"):
        pack(FolderOrigin(root), tmp_path / "other", Selection(), Options(prune=True))
    with pytest.raises(UsageError, match="no images are selected"):
        pack(FolderOrigin(root), tmp_path / "other", Selection(include=("*.tif",)))


def test_the_command_packs_and_says_how_to_train_on_it(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flatout", "stage", str(root), str(tmp_path / "packed"), "--pack", "--json"]
    done = subprocess.run([*command, "--splits", "train,val"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["images"] == 32
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0  # without splits it is another set
    assert subprocess.run(command, capture_output=True, text=True).returncode == 2
