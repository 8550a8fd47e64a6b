"""Staging into packed sets: what a training reads from them is what lies in the folders."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flatout.errors import StagingFailed, UsageError
from flatout.formats.packed import PackedWriter
from flatout.loader.sources.folders import ImageFolderSource
from flatout.loader.sources.packed import PackedSource
from flatout.recipes.datasets import open_data
from flatout.recipes.reading import read_recipe
from flatout.report.staging import check_lines, packed_lines
from flatout.stage.destination.checking import check
from flatout.stage.destination.safe_paths import state_folder
from flatout.stage.packing.pack import pack
from flatout.stage.selection import Selection
from flatout.stage.sources.base import ObjectInfo
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.folder import FolderSource
from flatout.stage.transfer import Options
from tests.loader.photographs import make_class_folders


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_class_folders(tmp_path / "photographs", 4, 6, 64)


def test_splits_become_packed_sets_with_the_same_images_and_classes(root: Path, tmp_path: Path) -> None:
    (root / "train/readme.txt").write_text("no image")
    done = pack(FolderSource(root), tmp_path / "packed", Selection(splits=("train", "val")))
    assert (done.packed, done.classes, done.splits) == (4 * 8, 4, ("train", "val"))
    for split in ("train", "val"):
        ours, theirs = PackedSource(tmp_path / "packed" / split), ImageFolderSource(root / split)
        assert ours.samples == theirs.samples and ours.classes == theirs.classes
        assert all(ours.read(place) == theirs.read(place) for place in range(len(theirs.samples)))
    data = open_data(read_recipe("demo", [f"data.root={tmp_path / 'packed'}"]))
    assert isinstance(data.train, PackedSource) and len(data.classes) == 4


@pytest.mark.parametrize("shard_bytes", [None, 100_000])
def test_a_packed_set_can_be_checked(root: Path, tmp_path: Path, shard_bytes: int | None) -> None:
    packed = tmp_path / "packed"
    done = pack(FolderSource(root), packed, Selection(splits=("train",)), shard_bytes=shard_bytes)
    assert done.verified == {"size and time": done.packed} and "--check" in packed_lines(done)
    files = sorted(str(path.relative_to(packed)) for path in packed.rglob("*") if path.is_file())
    found = check(packed)
    assert (found.files, found.missing, found.changed) == (len(files), (), ())
    first = next(packed / name for name in files if name.endswith((".bin", ".tar")))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    (packed / "train" / "keys.txt").unlink()
    found = check(packed)
    assert found.changed == (str(first.relative_to(packed)),) and found.missing == ("train/keys.txt",)
    assert "pack it again" in check_lines(found)


@pytest.mark.parametrize("shard_bytes", [None, 100_000])
def test_split_folders_are_packed_as_splits_where_none_are_named(
    root: Path, tmp_path: Path, shard_bytes: int | None
) -> None:
    (root / "val/labels.csv").write_text("no image")
    said: list[str] = []
    done = pack(FolderSource(root), tmp_path / "packed", Selection(), report=said.append, shard_bytes=shard_bytes)
    assert (done.packed, done.classes, done.splits) == (4 * 8, 4, ("train", "val"))
    assert said[0].startswith("train, val: taken as splits")
    assert said[1] == "1 other than images left out, such as val/labels.csv"
    assert {path.name for path in (tmp_path / "packed").iterdir()} == {"train", "val"}
    drawn = pack(FolderSource(root), tmp_path / "two", Selection(classes=2, seed=1), shard_bytes=shard_bytes)
    assert (drawn.classes, drawn.splits) == (2, ("train", "val"))
    one = pack(FolderSource(root), tmp_path / "one", Selection(include=("val/*",)), shard_bytes=shard_bytes)
    assert one.splits == ("val",) and not (tmp_path / "one/train").exists()


def test_folders_beside_splits_are_classes_and_that_is_said(root: Path, tmp_path: Path) -> None:
    (root / "other").mkdir()
    (root / "other/1.jpg").write_bytes(next((root / "val").rglob("*.jpg")).read_bytes())
    said: list[str] = []
    done = pack(FolderSource(root), tmp_path / "packed", Selection(), report=said.append)
    assert (done.packed, done.classes, done.splits) == (4 * 8 + 1, 3, ("",))
    assert "--splits train,val" in said[0]


def test_a_draw_of_classes_is_the_same_in_every_split(root: Path, tmp_path: Path) -> None:
    pack(FolderSource(root), tmp_path / "packed", Selection(splits=("train", "val"), classes=2, seed=5))
    classes = {PackedSource(tmp_path / "packed" / split).classes for split in ("train", "val")}
    assert len(classes) == 1 and len(next(iter(classes))) == 2


def test_images_without_class_folders_can_be_predicted(root: Path, tmp_path: Path) -> None:
    pack(FolderSource(next((root / "val").iterdir())), tmp_path / "packed", Selection())
    assert {sample.label for sample in PackedSource(tmp_path / "packed", labelled=False).samples} == {-1}


class Counting(FolderSource):
    """Counts the images that are read; from ``broken`` reads on, none can be."""

    def __init__(self, root: Path, broken: int = 1_000) -> None:
        super().__init__(root)
        self.broken, self.keys = broken, list[str]()

    def read(self, obj: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
        self.keys.append(obj.key)
        if len(self.keys) > self.broken:
            raise Failure("gone", f"{obj.key}: gone")
        return super().read(obj, start, length)


def test_what_cannot_be_read_ends_it_before_a_set_appears(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StagingFailed, match=r"jpg: gone: nothing of .*packed/train is there yet; run the same command"):
        pack(Counting(root, 10), tmp_path / "packed", Selection(splits=("train",)), Options(concurrency=1))
    assert not list((tmp_path / "packed").rglob("*"))


@pytest.mark.parametrize("shard_bytes", [None, 12_000])
def test_a_packing_that_ended_goes_on_behind_the_last_whole_part(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_bytes: int | None
) -> None:
    monkeypatch.setattr(PackedWriter.__init__, "__defaults__", (12_000,))
    selection, jobs = Selection(splits=("train", "val")), Options(concurrency=1)
    whole = pack(Counting(root), tmp_path / "whole", selection, jobs, shard_bytes=shard_bytes)
    with pytest.raises(StagingFailed):
        pack(Counting(root, 15), tmp_path / "packed", selection, jobs, shard_bytes=shard_bytes)
    again = Counting(root)
    done = pack(again, tmp_path / "packed", selection, jobs, shard_bytes=shard_bytes)
    assert done.kept + done.packed == whole.packed == len(again.keys) + done.kept
    assert 5 <= done.kept <= 15
    files = {path.relative_to(tmp_path / "whole"): path for path in (tmp_path / "whole").rglob("*") if path.is_file()}
    assert len(files) > 6
    for name, path in files.items():
        assert (tmp_path / "packed" / name).read_bytes() == path.read_bytes(), name
    assert not list(state_folder(tmp_path / "packed").glob("packing-*"))
    nothing = Counting(root)
    kept = pack(nothing, tmp_path / "packed", selection, jobs, shard_bytes=shard_bytes)
    assert (kept.kept, kept.packed, nothing.keys) == (whole.packed, 0, [])


def test_another_choice_begins_anew(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PackedWriter.__init__, "__defaults__", (12_000,))
    with pytest.raises(StagingFailed):
        pack(Counting(root, 15), tmp_path / "packed", Selection(splits=("train",)), Options(concurrency=1))
    done = pack(Counting(root), tmp_path / "packed", Selection(splits=("train",), seed=7), Options(concurrency=1))
    assert (done.kept, done.packed) == (0, 24)


def test_killed_in_the_move_the_set_is_moved_whole(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    moved: list[str] = []

    def replace(source: Path, target: Path) -> None:
        if "packing-" in str(source) and Path(source).parent != Path(target).parent:
            moved.append(str(target))
            if len(moved) == 2:
                raise KeyboardInterrupt
        os.rename(source, target)

    monkeypatch.setattr("flatout.stage.packing.split_packer.os.replace", replace)
    with pytest.raises(KeyboardInterrupt):
        pack(FolderSource(root), tmp_path / "packed", Selection(splits=("train",)))
    monkeypatch.undo()
    again = Counting(root)
    pack(again, tmp_path / "packed", Selection(splits=("train",)))
    assert again.keys == []
    assert len(PackedSource(tmp_path / "packed/train").samples) == 24


def test_a_packed_set_is_not_overwritten_and_nothing_selected_is_said(root: Path, tmp_path: Path) -> None:
    pack(FolderSource(root), tmp_path / "packed", Selection(splits=("val",)))
    with pytest.raises(UsageError, match="another packed set is there"):
        pack(FolderSource(root), tmp_path / "packed", Selection(splits=("val",), seed=7))
    with pytest.raises(UsageError, match="--prune: a packed set is written whole"):
        pack(FolderSource(root), tmp_path / "other", Selection(), Options(prune=True))
    with pytest.raises(UsageError, match="no images are selected"):
        pack(FolderSource(root), tmp_path / "other", Selection(include=("*.tif",)))


@pytest.mark.slow
def test_the_command_packs_and_says_how_to_train_on_it(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flatout", "stage", str(root), str(tmp_path / "packed"), "--pack", "--json"]
    done = subprocess.run([*command, "--splits", "train,val"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["packed"] == 32
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0  # without splits it is another set
    once_more = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(once_more.stdout)["packed"] == 0 and "packed already" in once_more.stderr
    other = subprocess.run([*command, "--seed", "7"], capture_output=True, text=True)
    assert other.returncode == 2 and "another packed set is there" in other.stderr


@pytest.mark.parametrize(
    ("name", "shard_bytes"),
    [("keys.txt", None), ("part-00000.bin", None), ("keys.txt", 12_000), ("shard-000000.tar", 12_000),
     ("classes.json", 12_000)],
)  # fmt: skip
def test_files_that_a_packing_did_not_make_are_kept(
    root: Path, tmp_path: Path, name: str, shard_bytes: int | None
) -> None:
    (tmp_path / "packed/train").mkdir(parents=True)
    (tmp_path / "packed/train" / name).write_text("theirs")
    (tmp_path / "packed/train/notes.txt").write_text("theirs")
    with pytest.raises(UsageError, match=rf"{name}: exists already"):
        pack(FolderSource(root), tmp_path / "packed", Selection(splits=("train",)), shard_bytes=shard_bytes)
    (tmp_path / "packed/train" / name).rename(tmp_path / "packed/train/other")
    pack(FolderSource(root), tmp_path / "packed", Selection(splits=("train",)), shard_bytes=shard_bytes)
    assert {(tmp_path / "packed/train" / kept).read_text() for kept in ("other", "notes.txt")} == {"theirs"}


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"null\n5\n", b"\xff\n", b"12\nx\n"])
def test_damaged_notes_of_a_packing_begin_it_anew(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    monkeypatch.setattr(PackedWriter.__init__, "__defaults__", (12_000,))
    with pytest.raises(StagingFailed):
        pack(Counting(root, 15), tmp_path / "packed", Selection(splits=("train",)), Options(concurrency=1))
    own = state_folder(tmp_path / "packed")
    (own / "packed.json").write_bytes(damage)
    (own / "packing-0/journal.jsonl").write_bytes(damage)
    pack(Counting(root), tmp_path / "packed", Selection(splits=("train",)), Options(concurrency=1))
    ours, theirs = PackedSource(tmp_path / "packed/train"), ImageFolderSource(root / "train")
    assert ours.samples == theirs.samples
    assert all(ours.read(place) == theirs.read(place) for place in range(len(theirs.samples)))


def kill_many(root: Path, dest: Path, shard_bytes: int | None) -> None:
    """In a process of its own, without threads: it forks those that are killed."""
    PackedWriter.__init__.__defaults__ = (12_000,)
    draw = random.Random(3)
    for _ in range(100):
        child = os.fork()
        if not child:
            try:
                pack(
                    Slow(root),
                    dest,
                    Selection(splits=("train", "val")),
                    Options(concurrency=2),
                    shard_bytes=shard_bytes,
                )
            finally:
                os._exit(0)
        time.sleep(draw.uniform(0, 0.1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for last in dest.rglob("packed.json"):
            assert len(PackedSource(last.parent, labelled=False).samples) in (8, 24)


class Slow(FolderSource):
    """Takes a moment for each image, so that kills fall between them."""

    def read(self, obj: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
        time.sleep(0.003)
        return super().read(obj, start, length)


@pytest.mark.slow
@pytest.mark.parametrize("shard_bytes", [None, 12_000])
def test_killed_at_random_moments_a_packing_ends_as_if_it_had_not_been(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_bytes: int | None
) -> None:
    driver = multiprocessing.get_context("spawn").Process(
        target=kill_many, args=(root, tmp_path / "packed", shard_bytes)
    )
    driver.start()
    driver.join()
    assert driver.exitcode == 0
    monkeypatch.setattr(PackedWriter.__init__, "__defaults__", (12_000,))
    for name in ("packed", "whole"):
        pack(FolderSource(root), tmp_path / name, Selection(splits=("train", "val")), shard_bytes=shard_bytes)
    files = {path.relative_to(tmp_path / "whole"): path for path in (tmp_path / "whole").rglob("*") if path.is_file()}
    assert {path.relative_to(tmp_path / "packed") for path in (tmp_path / "packed").rglob("*") if path.is_file()} == (
        set(files)
    )
    for name, path in files.items():
        assert (tmp_path / "packed" / name).read_bytes() == path.read_bytes(), name
