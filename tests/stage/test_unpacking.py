"""Archives that become folders: every file of them, none outside, and nothing twice."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from flatout.stage.destination.checking import check
from flatout.stage.destination.safe_paths import state_folder
from flatout.stage.outlook import look_ahead
from flatout.stage.selection import Selection
from flatout.stage.sources.base import ObjectInfo
from flatout.stage.sources.folder import FolderSource
from flatout.stage.sources.object_files import RangedFile
from flatout.stage.staging import stage
from flatout.stage.transfer import Options

FILES = {f"{number}.jpg": os.urandom(1_000 + number) for number in range(40)}
UNPACK = Options(unpack=True)


def write_tar(path: Path, mode: str, prefix: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, data in FILES.items():
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            archive.writestr(f"inner/{name}", data)


class Counting(FolderSource):
    """Counts the bytes that are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.bytes = 0

    def read(self, obj: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
        data = bytes(super().read(obj, start, length))
        self.bytes += len(data)
        return data


def test_archives_of_every_kind_become_folders(tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "dest"
    write_tar(source / "train/n01.tar", "w")
    write_tar(source / "train/n02.tar.gz", "w:gz", prefix="./n02/")  # its own folder is not doubled
    write_tar(source / "n03.tar.xz", "w:xz", prefix="deep/er/")
    write_zip(source / "n04.zip")
    (source / "plain.txt").write_text("not an archive")
    opened = Counting(source)
    done = stage(opened, dest, Selection(), UNPACK)
    assert (done.n_failed, done.n_refused, done.copied, done.total_files) == (0, 0, 5, 4 * len(FILES) + 1)
    for folder in ("train/n01", "train/n02", "n03/deep/er", "n04/inner"):
        assert {path.name: path.read_bytes() for path in (dest / folder).iterdir()} == FILES
    assert not list(dest.rglob("*.tar*")) and not list(dest.rglob("*.zip"))
    assert not list((state_folder(dest) / "partial").iterdir())
    read, size = opened.bytes, sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    assert read <= 1.1 * size  # once, but for a zip's table
    again = stage(opened, dest, Selection(), UNPACK)
    assert (again.copied, again.kept, again.n_gone) == (0, 5, 0) and opened.bytes == read
    assert check(dest).files == done.total_files and not check(dest).changed


def test_what_was_touched_or_changed_is_unpacked_again_and_only_that_is_written(tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "dest"
    write_tar(source / "a.tar", "w")
    stage(FolderSource(source), dest, Selection(), UNPACK)
    kept = (dest / "a/1.jpg").stat().st_mtime_ns
    (dest / "a/0.jpg").write_bytes(b"touched")
    assert stage(FolderSource(source), dest, Selection(), UNPACK).n_failed == 1
    assert (dest / "a/0.jpg").read_bytes() == b"touched"
    stage(FolderSource(source), dest, Selection(), replace(UNPACK, overwrite=True))
    assert (dest / "a/0.jpg").read_bytes() == FILES["0.jpg"] and (dest / "a/1.jpg").stat().st_mtime_ns == kept
    (source / "other.txt").write_text("still there")
    (source / "a.tar").unlink()
    gone = stage(FolderSource(source), dest, Selection(), Options(unpack=True, prune=True, prune_most=True))
    assert gone.n_gone == len(FILES) and not (dest / "a").exists()


def test_members_that_lead_out_and_links_are_left_out(tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    with tarfile.open(source / "bad.tar", "w") as tar:
        for name in ("../../out.txt", "/absolute.txt", "a/../../b.txt", "good.txt", "tab\tname"):
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"data"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
    done = stage(FolderSource(source), dest, Selection(), UNPACK)
    assert [str(path.relative_to(dest)) for path in dest.rglob("*") if path.is_file()] == ["bad/good.txt"]
    assert done.n_refused == 5 and not (tmp_path / "out.txt").exists() and not (tmp_path / "b.txt").exists()


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
def test_a_damaged_archive_is_named_and_the_rest_staged(tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / name).write_bytes(b"this is no archive at all" * 100)
    (source / "fine.txt").write_text("fine")
    done = stage(FolderSource(source), tmp_path / "dest", Selection(), UNPACK)
    assert done.n_failed == 1 and name in done.failed_examples[0] and (tmp_path / "dest/fine.txt").exists()


def test_an_archive_that_is_cut_off_fails_and_no_half_file_stays(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_tar(source / "a.tar", "w")
    whole = (source / "a.tar").read_bytes()
    (source / "a.tar").write_bytes(whole[:20_700])
    done = stage(FolderSource(source), tmp_path / "dest", Selection(), UNPACK)
    assert done.n_failed == 1
    for path in (tmp_path / "dest").rglob("*.jpg"):
        assert path.read_bytes() == FILES[path.name]
    (source / "a.tar").write_bytes(whole)
    assert stage(FolderSource(source), tmp_path / "dest", Selection(), UNPACK).total_files == len(FILES)


def test_a_ranged_file_reads_and_seeks_as_a_file_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(10_000)
    (tmp_path / "x.bin").write_bytes(data)
    opened = FolderSource(tmp_path)
    (obj,) = opened.objects()
    with RangedFile(opened, obj, block_bytes=777) as file:
        assert file.read() == data and file.read(1) == b""
        for at, length in ((9_990, 100), (0, 5), (776, 2), (5_000, 1_600)):
            file.seek(at)
            file.seek(at)
            got = b""
            while len(got) < length and (piece := file.read(length - len(got))):
                got += piece
            assert got == data[at : at + length]
        assert file.seek(-3, io.SEEK_END) == 9_997 and file.read() == data[-3:]


def test_a_dry_run_counts_an_archive_that_was_unpacked_as_there(tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    (tmp_path / "1.bin").write_bytes(b"one")

    def missing() -> int:
        outlook = look_ahead(FolderSource(source), dest, Selection(), unpack=True)
        assert outlook is not None
        return outlook.missing_files

    with tarfile.open(source / "a.tar", "w") as tar:
        tar.add(tmp_path / "1.bin", "1.bin")
    assert missing() == 1
    stage(FolderSource(source), dest, Selection(), Options(unpack=True))
    assert missing() == 0
    with tarfile.open(source / "a.tar", "a") as tar:
        tar.add(tmp_path / "1.bin", "2.bin")
    os.utime(source / "a.tar", ns=(1, 1))
    assert missing() == 1
