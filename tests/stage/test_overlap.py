"""A destination that shares files with its source is refused, however it is named."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from flatout.errors import UsageError
from flatout.stage.destination import overlap
from flatout.stage.destination.overlap import Place, place_of
from flatout.stage.pictures import PictureChange
from flatout.stage.selection import Selection
from flatout.stage.sources.folder import FolderSource
from flatout.stage.staging import stage
from flatout.stage.transfer import Options


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "all/source/c0").mkdir(parents=True)
    (tmp_path / "all/source/c0/1.jpg").write_bytes(b"photograph")
    (tmp_path / "link").symlink_to(tmp_path / "all/source")
    (tmp_path / "up").symlink_to(tmp_path / "all")
    return tmp_path / "all/source"


@pytest.mark.parametrize(
    ("one", "other", "how"),
    [
        ("all/source", "all/source", "is the same folder as"),
        ("all/source", "link", "is the same folder as"),
        ("link", "all/source", "is the same folder as"),
        ("all/source", "up/source/../source", "is the same folder as"),
        ("all/source", "all/source/new/dest", "lies in"),
        ("link", "up/source/dest", "lies in"),
        ("all/source", "link/dest", "lies in"),
        ("all/source", "all", "holds"),
        ("link", "up", "holds"),
    ],
)
def test_source_and_destination_that_overlap_are_refused(
    source: Path, tmp_path: Path, one: str, other: str, how: str
) -> None:
    change = Options(change=PictureChange(short_side=64), overwrite=True)
    with pytest.raises(UsageError, match=how):
        stage(FolderSource(tmp_path / one), tmp_path / other, Selection(), change)
    assert [path.name for path in source.rglob("*")] == ["c0", "1.jpg"]
    assert (source / "c0/1.jpg").read_bytes() == b"photograph"


def test_a_folder_beside_the_source_with_a_similar_name_is_another(source: Path, tmp_path: Path) -> None:
    assert stage(FolderSource(source), tmp_path / "all/source-2", Selection()).copied == 1


def test_a_mount_of_a_folder_is_that_folder_of_its_disk(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve()
    (root / "bound").mkdir()
    lines = [
        "21 1 8:1 / / rw - ext4 /dev/a rw",
        f"30 21 8:1 {root}/all/source/c0 {root}/bound rw - ext4 /dev/a rw",
        f"31 21 8:2 / {root}/other\\040disk rw - ext4 /dev/b rw",
    ]
    (root / "mounts").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(overlap, "_MOUNTS", root / "mounts")
    assert place_of(root / "bound/x") == Place("8:1", PurePosixPath(f"{root}/all/source/c0/x"))
    assert place_of(root / "other disk/x") == Place("8:2", PurePosixPath("/x"))
    with pytest.raises(UsageError, match="lies in"):
        stage(FolderSource(source), root / "bound/dest", Selection())
    assert not (root / "bound/dest").exists()


@pytest.mark.parametrize(
    ("disk", "root", "point"),
    [("8:1", "all/source/c0", "dest/a"), ("8:1", "dest", "all/source/c0"), ("8:1", "dest/a", "all/source/c0")],
)
def test_a_mount_in_one_of_a_part_of_the_other_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str, root: str, point: str
) -> None:
    top = tmp_path.resolve()
    lines = ["21 1 8:1 / / rw - ext4 /dev/a rw", f"30 21 {disk} {top}/{root} {top}/{point} rw - ext4 /dev/a rw"]
    (top / "mounts").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(overlap, "_MOUNTS", top / "mounts")
    with pytest.raises(UsageError, match="mounted in"):
        stage(FolderSource(source), top / "dest", Selection())
    assert stage(FolderSource(source), top / "apart", Selection()).n_failed == 0
