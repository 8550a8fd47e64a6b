"""What is pruned: only what staging made, still knows, and a complete listing says is gone."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatout.errors import StagingFailed, UsageError
from flatout.report.staging import summary_lines
from flatout.stage.destination import pruning
from flatout.stage.selection import Selection
from flatout.stage.sources.base import ObjectInfo
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.folder import FolderSource
from flatout.stage.staging import stage
from flatout.stage.transfer import Options

PRUNE = Options(prune=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number in range(12):
        path = tmp_path / "source" / f"c{number % 3}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100 + number))
    return tmp_path / "source"


@pytest.fixture
def dest(source: Path, tmp_path: Path) -> Path:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    return tmp_path / "dest"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class Denied(FolderSource):
    """A source that lists everything and gives nothing."""

    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Iterator[memoryview]:  # type: ignore[override]
        raise Failure("denied", f"{obj.key}: 403")
        yield buffer


def test_a_file_whose_new_version_cannot_be_fetched_is_not_pruned(source: Path, dest: Path) -> None:
    before = (dest / "c0/0.bin").read_bytes()
    (source / "c0/0.bin").write_bytes(b"a new version")
    summary = stage(Denied(source), dest, Selection(), PRUNE)
    assert (summary.n_failed, summary.n_gone, summary.pruned) == (1, 0, 0)
    assert (dest / "c0/0.bin").read_bytes() == before


def test_an_archive_that_cannot_be_read_keeps_its_files(tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    (tmp_path / "1.bin").write_bytes(b"one")
    with tarfile.open(source / "a.tar", "w") as tar:
        tar.add(tmp_path / "1.bin", "1.bin")
    stage(FolderSource(source), dest, Selection(), Options(unpack=True))
    (source / "a.tar").write_bytes(b"no archive" * 100)
    summary = stage(FolderSource(source), dest, Selection(), Options(unpack=True, prune=True, prune_most=True))
    assert (summary.n_failed, summary.n_gone) == (1, 0) and files(dest) == {"a/1.bin"}


def test_files_of_an_archive_are_not_gone_when_it_is_copied_as_it_is(tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    (tmp_path / "1.bin").write_bytes(b"one")
    with tarfile.open(source / "a.tar", "w") as tar:
        tar.add(tmp_path / "1.bin", "1.bin")
    stage(FolderSource(source), dest, Selection(), Options(unpack=True))
    assert stage(FolderSource(source), dest, Selection(), Options(prune=True, prune_most=True)).n_gone == 0
    assert stage(FolderSource(source), dest, Selection(), Options(unpack=True, prune=True, prune_most=True)).n_gone == 0
    assert files(dest) == {"a.tar", "a/1.bin"}


def test_what_is_gone_goes_with_the_folders_that_staging_made(source: Path, dest: Path) -> None:
    (dest / "mine").mkdir()
    (dest / "c0/note.txt").write_text("mine")
    for name in ("c0/0.bin", "c1/1.bin", "c1/4.bin", "c1/7.bin", "c1/10.bin"):
        (source / name).unlink()
    (source / "c1").rmdir()
    summary = stage(FolderSource(source), dest, Selection(), PRUNE)
    assert (summary.n_gone, summary.pruned, summary.not_pruned) == (5, 5, "")
    assert sorted(path.name for path in dest.iterdir()) == ["c0", "c2", "mine"]
    assert (dest / "c0/note.txt").exists() and not (dest / "c0/0.bin").exists()


def test_a_folder_that_was_there_before_staging_stays(source: Path, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    (dest / "c1").mkdir(parents=True)
    stage(FolderSource(source), dest, Selection())
    for number in (1, 4, 7, 10):
        (source / f"c1/{number}.bin").unlink()
    assert stage(FolderSource(source), dest, Selection(), PRUNE).pruned == 4
    assert (dest / "c1").is_dir()


def test_files_that_the_user_changed_or_made_stay(source: Path, dest: Path) -> None:
    (dest / "c0/own.bin").write_bytes(b"mine")
    (dest / "c0/0.bin").write_bytes(b"edited")
    stat = (dest / "c0/3.bin").stat()
    (dest / "c0/3.bin").write_bytes(b"x" * stat.st_size)
    os.utime(dest / "c0/3.bin", ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the checksum alone tells it
    for name in ("c0/0.bin", "c0/3.bin", "c0/6.bin"):
        (source / name).unlink()
    summary = stage(FolderSource(source), dest, Selection(), PRUNE)
    assert (summary.n_gone, summary.pruned, summary.gone_changed) == (3, 1, 2)
    assert files(dest) >= {"c0/own.bin", "c0/0.bin", "c0/3.bin"} and not (dest / "c0/6.bin").exists()


def test_nothing_is_removed_through_a_link_to_a_folder(source: Path, dest: Path, tmp_path: Path) -> None:
    (dest / "c0").rename(tmp_path / "elsewhere")
    (dest / "c0").symlink_to(tmp_path / "elsewhere")
    (source / "c0/0.bin").unlink()
    summary = stage(FolderSource(source), dest, Selection(), PRUNE)
    assert (summary.pruned, summary.gone_changed) == (0, 1)
    assert (tmp_path / "elsewhere/0.bin").exists()


@pytest.mark.parametrize("left", [1, 5])
def test_more_than_half_is_pruned_only_when_that_is_said(source: Path, dest: Path, left: int) -> None:
    for path in sorted(source.rglob("*.bin"))[left:]:
        path.unlink()
    refused = stage(FolderSource(source), dest, Selection(), PRUNE)
    assert refused.pruned == 0 and "--prune-most" in refused.not_pruned and len(files(dest)) == 12
    assert stage(FolderSource(source), dest, Selection(), Options(prune=True, prune_most=True)).pruned == 12 - left
    assert len(files(dest)) == left


def test_a_source_in_which_nothing_is_found_prunes_nothing(source: Path, dest: Path) -> None:
    most = Options(prune=True, prune_most=True)
    with pytest.raises(UsageError, match="nothing was pruned"):
        stage(FolderSource(source), dest, Selection(include=("*.png",)), most)
    for path in source.rglob("*.bin"):
        path.unlink()
    with pytest.raises(UsageError, match="nothing was pruned"):
        stage(FolderSource(source), dest, Selection(), most)
    (source / "a\nb").write_bytes(b"a name that is left out")
    summary = stage(FolderSource(source), dest, Selection(), most)
    assert (summary.pruned, summary.not_pruned) == (0, "the listing found no files")
    assert len(files(dest)) == 12


class Partly(FolderSource):
    """A source one folder of which could not be listed."""

    unlisted = ("c0: Permission denied",)  # type: ignore[assignment]

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from (obj for obj in super().objects(prefix) if not obj.key.startswith("c0/"))


def test_a_listing_that_is_not_complete_prunes_nothing_and_says_so(source: Path, dest: Path) -> None:
    summary = stage(Partly(source), dest, Selection(), PRUNE)
    assert summary.pruned == 0 and "not complete: c0: Permission denied" in summary.not_pruned
    assert len(files(dest)) == 12


class Broken(FolderSource):
    """A source whose listing ends with an error."""

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield next(super().objects(prefix))
        raise Failure("denied", "listing: 403")


def test_a_listing_that_fails_prunes_nothing(source: Path, dest: Path) -> None:
    with pytest.raises(StagingFailed):
        stage(Broken(source), dest, Selection(), Options(prune=True, prune_most=True))
    assert len(files(dest)) == 12


def test_a_file_of_the_user_that_was_taken_over_is_neither_pruned_nor_replaced(source: Path, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    (dest / "c0").mkdir(parents=True)
    for name in ("c0/0.bin", "c0/3.bin"):
        (dest / name).write_bytes((source / name).read_bytes())
    assert stage(FolderSource(source), dest, Selection()).n_failed == 0
    mine = (dest / "c0/3.bin").read_bytes()
    (source / "c0/0.bin").unlink()
    (source / "c0/3.bin").write_bytes(b"newer")
    summary = stage(FolderSource(source), dest, Selection(), PRUNE)
    assert (summary.pruned, summary.gone_yours, summary.n_failed) == (0, 1, 1)
    assert "staging did not make" in summary.failed_examples[0] and "yours" in summary_lines(summary)
    assert (dest / "c0/0.bin").exists() and (dest / "c0/3.bin").read_bytes() == mine
    assert stage(FolderSource(source), dest, Selection(), Options(overwrite=True)).copied == 1
    (source / "c0/3.bin").unlink()
    assert stage(FolderSource(source), dest, Selection(), PRUNE).pruned == 1  # staging's own by now
    assert (dest / "c0/0.bin").exists() and not (dest / "c0/3.bin").exists()


def test_a_file_that_is_put_there_while_the_old_one_is_checked_is_not_removed(
    source: Path, dest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "c0/0.bin").unlink()
    (tmp_path / "mine").write_bytes(b"precious")
    real = pruning.checksum_of

    def checked(path: Path | str, like: str) -> str:
        found = real(path, like)
        (tmp_path / "mine").rename(dest / "c0/0.bin")
        return found

    monkeypatch.setattr(pruning, "checksum_of", checked)
    summary = stage(FolderSource(source), dest, Selection(), PRUNE)
    assert (summary.pruned, summary.gone_changed) == (0, 1)
    assert (dest / "c0/0.bin").read_bytes() == b"precious"


def test_an_empty_folder_that_the_user_made_again_stays(source: Path, dest: Path) -> None:
    shutil.rmtree(source / "c1")
    shutil.rmtree(dest / "c1")
    (dest / "c1").mkdir()
    assert stage(FolderSource(source), dest, Selection(), PRUNE).pruned == 4
    assert (dest / "c1").is_dir()
