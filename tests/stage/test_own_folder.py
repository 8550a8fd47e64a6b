"""Staging's own folder: links planted in it, damage, a destination that was moved or is reached by a link."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from flatout.cli import main
from flatout.errors import UsageError
from flatout.stage import outlook
from flatout.stage.destination.checking import check
from flatout.stage.destination.lock import destination_lock
from flatout.stage.destination.safe_paths import state_folder
from flatout.stage.outlook import look_ahead
from flatout.stage.selection import Selection
from flatout.stage.sources.folder import FolderSource
from flatout.stage.staging import stage
from flatout.stage.transfer import Options


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number in range(6):
        path = tmp_path / "source" / f"c{number % 3}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100 + number))
    return tmp_path / "source"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/1-1").write_bytes(b"precious")
    return tmp_path / "victim"


def untouched(victim: Path) -> bool:
    return [path.name for path in victim.iterdir()] == ["1-1"] and (victim / "1-1").read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["lock", "state.sqlite", "state.sqlite-wal", "partial", "."])
def test_a_planted_link_is_refused(source: Path, victim: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "dest").mkdir()
    folder = state_folder(tmp_path / "dest")
    if name == ".":
        folder.symlink_to(victim)
    else:
        folder.mkdir()
        (folder / name).symlink_to(victim if name == "partial" else victim / "1-1")
    with pytest.raises(UsageError, match="not a plain"):
        stage(FolderSource(source), tmp_path / "dest", Selection())
    assert untouched(victim)


def test_a_link_in_place_of_the_manifest_is_replaced(source: Path, victim: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    manifest = state_folder(tmp_path / "dest") / "manifest.csv"
    manifest.unlink()
    manifest.symlink_to(victim / "1-1")
    (manifest.parent / "manifest.tmp").symlink_to(victim / "1-1")
    stage(FolderSource(source), tmp_path / "dest", Selection())
    assert untouched(victim) and not manifest.is_symlink()


def test_a_class_list_is_not_written_through_a_link_nor_over_a_file_of_the_user(
    source: Path, victim: Path, tmp_path: Path
) -> None:
    listed = tmp_path / "dest/classes.json"
    listed.parent.mkdir()
    listed.symlink_to(victim / "1-1")
    with pytest.raises(UsageError, match="a file that staging did not make"):
        stage(FolderSource(source), tmp_path / "dest", Selection(classes=2))
    assert untouched(victim)
    listed.unlink()
    listed.write_text("mine")
    with pytest.raises(UsageError, match="a file that staging did not make"):
        stage(FolderSource(source), tmp_path / "dest", Selection(classes=2))
    assert listed.read_text() == "mine"
    listed.unlink()
    for count in (2, 3):
        assert stage(FolderSource(source), tmp_path / "dest", Selection(classes=count)).classes == count


def test_what_is_not_an_unfinished_file_stays_in_the_folder_of_those(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    partial = state_folder(tmp_path / "dest") / "partial"
    (partial / "folder").mkdir()
    (partial / "mine.txt").write_text("mine")
    (partial / "1-1").symlink_to(source)
    stage(FolderSource(source), tmp_path / "dest", Selection())
    assert len(list(partial.iterdir())) == 3


def test_a_destination_by_a_link_is_the_same_destination(source: Path, tmp_path: Path) -> None:
    (tmp_path / "dest").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "dest")
    assert stage(FolderSource(source), tmp_path / "link", Selection()).copied == 6
    assert stage(FolderSource(source), tmp_path / "dest", Selection()).kept == 6
    assert check(tmp_path / "link").files == 6
    with (
        destination_lock(tmp_path / "dest", False, print),
        pytest.raises(UsageError, match="another staging goes on there"),
    ):
        stage(FolderSource(source), tmp_path / "link", Selection())


def test_the_state_of_a_destination_that_was_renamed_comes_along(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    (tmp_path / "dest").rename(tmp_path / "renamed")
    said: list[str] = []
    summary = stage(FolderSource(source), tmp_path / "renamed", Selection(), report=said.append)
    assert summary.kept == 6 and "was" in said[0] and str(tmp_path / "dest") in said[0]
    assert not state_folder(tmp_path / "dest").exists()


def test_another_folder_does_not_get_the_state_of_one_that_is_still_there(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    (tmp_path / ".empty.flatout-stage").mkdir()
    stage(FolderSource(source), tmp_path / "nameless", Selection())
    base = sqlite3.connect(state_folder(tmp_path / "nameless") / "state.sqlite")
    base.execute("DELETE FROM about")
    base.commit()
    base.close()
    assert stage(FolderSource(source), tmp_path / "other", Selection()).copied == 6
    assert stage(FolderSource(source), tmp_path / "dest", Selection()).kept == 6


def test_the_state_is_found_when_nothing_can_be_written_beside_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert state_folder(tmp_path / "dest") == tmp_path / ".dest.flatout-stage"
    assert check(tmp_path / "dest").files == 6
    assert stage(FolderSource(source), tmp_path / "dest", Selection()).kept == 6


def test_long_names_that_begin_alike_have_states_of_their_own(tmp_path: Path) -> None:
    one, other = tmp_path / ("é" * 120 + "a"), tmp_path / ("é" * 120 + "b")
    assert state_folder(one) != state_folder(other)
    state_folder(one).mkdir()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE files SET checksum=7 WHERE key LIKE 'c1%'",
        "UPDATE files SET mtime_ns='never' WHERE key LIKE 'c1%'",
        "UPDATE files SET key='../outside', size=4, checksum='crc32:69a8d393' WHERE key='c1/1.bin'",
    ],
)
def test_a_state_that_was_tampered_with_is_one_clear_line(source: Path, tmp_path: Path, statement: str) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    base = sqlite3.connect(state_folder(tmp_path / "dest") / "state.sqlite")
    base.execute(statement)
    base.commit()
    base.close()
    (tmp_path / "outside").write_text("mine")
    noted = (tmp_path / "dest/c1/1.bin").stat().st_mtime_ns
    os.utime(tmp_path / "outside", ns=(noted, noted))
    try:
        assert check(tmp_path / "dest").changed
    except UsageError as error:
        assert "damaged" in str(error)
    stage(FolderSource(source), tmp_path / "dest", Selection(), Options(prune=True, prune_most=True, overwrite=True))
    assert (tmp_path / "outside").read_text() == "mine"


def test_a_listing_number_that_is_none_is_one_clear_line(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    base = sqlite3.connect(state_folder(tmp_path / "dest") / "state.sqlite")
    base.execute("UPDATE about SET value='many' WHERE name='listing'")
    base.commit()
    base.close()
    with pytest.raises(UsageError, match="damaged"):
        stage(FolderSource(source), tmp_path / "dest", Selection())


def test_a_file_in_place_of_the_destination_cannot_be_checked(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    for path in sorted((tmp_path / "dest").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (tmp_path / "dest").rmdir()
    (tmp_path / "dest").write_text("a file")
    with pytest.raises(UsageError, match="not a folder"):
        check(tmp_path / "dest")


def test_the_same_address_on_another_server_is_another_source(source: Path, tmp_path: Path) -> None:
    one, other = FolderSource(source), FolderSource(source)
    one.server, other.server = "one:9000", "other:9000"
    stage(one, tmp_path / "dest", Selection())
    with pytest.raises(UsageError, match=r"at one:9000, not from .* at other:9000"):
        stage(other, tmp_path / "dest", Selection())


def test_a_dry_run_says_what_is_missing_and_writes_nothing(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    (tmp_path / "dest/c0/0.bin").unlink()
    before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
    found = look_ahead(FolderSource(source), tmp_path / "dest", Selection())
    assert found is not None
    assert (found.files, found.missing_files, found.missing_bytes) == (6, 1, 100)
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before
    fresh = look_ahead(FolderSource(source), tmp_path / "new", Selection())
    assert fresh is not None and fresh.missing_files == 6


def test_a_new_folder_does_not_get_the_state_of_one_that_is_gone_though_it_has_its_number(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("own_folder", "state"):
        monkeypatch.setattr(f"flatout.stage.destination.{module}.inode", lambda folder: "7")
    stage(FolderSource(source), tmp_path / "old", Selection())
    shutil.rmtree(tmp_path / "old")
    (tmp_path / "new").mkdir()
    assert stage(FolderSource(source / "c0"), tmp_path / "new", Selection()).copied == 2
    assert state_folder(tmp_path / "old").is_dir()


def test_a_state_that_was_copied_from_another_destination_is_not_trusted(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    shutil.copytree(tmp_path / "dest", tmp_path / "other")
    shutil.copytree(state_folder(tmp_path / "dest"), state_folder(tmp_path / "other"))
    wrong = tmp_path / "other/c0/0.bin"
    there = wrong.stat()
    wrong.write_bytes(b"x" * there.st_size)
    os.utime(wrong, ns=(there.st_atime_ns, there.st_mtime_ns))
    summary = stage(FolderSource(source), tmp_path / "other", Selection())
    assert (summary.kept, summary.n_failed) == (5, 1) and "c0/0.bin: was changed here" in summary.failed_examples[0]
    (source / "c1/1.bin").unlink()
    assert stage(FolderSource(source), tmp_path / "other", Selection(), Options(prune=True)).pruned == 1


def test_the_state_of_an_earlier_version_is_read_and_goes_on(source: Path, tmp_path: Path) -> None:
    stage(FolderSource(source), tmp_path / "dest", Selection())
    base = sqlite3.connect(state_folder(tmp_path / "dest") / "state.sqlite")
    for name in ("adopted", "suspect"):
        base.execute(f"ALTER TABLE files DROP COLUMN {name}")
    base.commit()
    base.close()
    outlook = look_ahead(FolderSource(source), tmp_path / "dest", Selection())
    assert outlook is not None and outlook.missing_files == 0
    assert check(tmp_path / "dest").files == 6 and check(tmp_path / "dest").changed == ()
    (source / "c0/0.bin").unlink()
    summary = stage(FolderSource(source), tmp_path / "dest", Selection(), Options(prune=True))
    assert (summary.kept, summary.pruned) == (5, 1)


def test_a_dry_run_that_is_interrupted_says_that_nothing_was_copied(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(outlook, "look_ahead", interrupted)
    assert main(["stage", "--dry-run", str(source), str(tmp_path / "dest")]) == 130
    assert capsys.readouterr().err == "stopped: nothing was copied\n"
    assert not (tmp_path / "dest").exists()
