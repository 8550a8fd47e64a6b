"""Folders, tables and shards give the same images with the same class indices."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.loader.sources.folders import ImageFolderSource
from flatout.loader.sources.shards import ShardSource
from flatout.loader.sources.table import TableSource
from tests.loader.photographs import make_class_folders


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_class_folders(tmp_path / "photographs", 3, 4, 64)


def pack(root: Path, folder: Path, with_cls: bool) -> Path:
    folder.mkdir()
    files = sorted((root / "train").rglob("*.jpg"))
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as shard:
            for place, path in enumerate(files[number::2]):
                key = f"{number}{place:04}" if with_cls else f"{path.parent.name}/{number}{place:04}"
                parts = [(f"{key}.jpg", path.read_bytes())]
                if with_cls:
                    parts.append((f"{key}.cls", path.parent.name.encode()))
                for name, data in parts:
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    shard.addfile(member, io.BytesIO(data))
    return folder


def contents(source: ImageFolderSource | ShardSource | TableSource) -> list[tuple[bytes, str]]:
    return sorted((source.read(n), source.classes[s.label]) for n, s in enumerate(source.samples))


@pytest.mark.parametrize("with_cls", [True, False])
def test_shards_hold_what_the_folders_hold(root: Path, tmp_path: Path, with_cls: bool) -> None:
    folders = ImageFolderSource(root / "train")
    shards = ShardSource(pack(root, tmp_path / "shards", with_cls))
    assert contents(shards) == contents(folders) and shards.classes == folders.classes
    copy = pickle.loads(pickle.dumps(shards))  # as a spawned worker gets it
    assert contents(copy) == contents(folders)
    assert "0.tar: " in shards.locate(0)


def test_a_table_names_images_with_or_without_extension(root: Path, tmp_path: Path) -> None:
    images, rows = tmp_path / "images", ["id,breed"]
    images.mkdir()
    for number, path in enumerate(sorted((root / "train").rglob("*.jpg"))):
        (images / f"{number}.jpg").write_bytes(path.read_bytes())
        rows.append(f"{number}{'.jpg' if number % 2 else ''},{path.parent.name}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    table = TableSource(images, tmp_path / "labels.csv", "id", "breed")
    assert contents(table) == contents(ImageFolderSource(root / "train"))
    assert Path(table.locate(0)).read_bytes() == table.read(0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,breed\nnowhere,x\n", r"no file in .* for 1 id, such as nowhere"),
        ("id,kind\n000,x\n", "no column 'breed': it has id, kind"),
        ("id,breed\n000,\n", "1 row without 'breed'"),
        ("id,breed\n000,x\n000,y\n", "an id appears twice"),
    ],
)
def test_a_wrong_table_is_refused_by_what_is_wrong(root: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "labels.csv").write_text(text)
    folder = next((root / "train").iterdir())
    with pytest.raises(UsageError, match=said):
        TableSource(folder, tmp_path / "labels.csv", "id", "breed")


def test_a_subset_of_classes_keeps_its_own_indices(root: Path) -> None:
    names = ImageFolderSource(root / "train").classes
    part = ImageFolderSource(root / "train", classes=(names[2], names[0]))
    assert {s.key.split("/")[0]: s.label for s in part.samples} == {names[2]: 0, names[0]: 1}


def test_images_without_labels_are_found_anywhere_below(root: Path) -> None:
    source = ImageFolderSource(root, labelled=False)
    assert len(source.samples) == 3 * 4 + 3 * 2 and {s.label for s in source.samples} == {-1}


def test_an_empty_folder_a_missing_one_and_a_damaged_shard_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no images in it"):
        ImageFolderSource(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        ImageFolderSource(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"no \.tar shards"):
        ShardSource(tmp_path)
    (tmp_path / "a.tar").write_bytes(b"x" * 2000)
    with pytest.raises(UsageError, match="not readable as a tar shard"):
        ShardSource(tmp_path)
