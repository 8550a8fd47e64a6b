"""The example data set: real JPEGs of the stated size, made once, repaired when cut."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PER_CLASS = 6
CLASSES = 8


def make(folder: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "photographs.py"), "--data", str(folder), *extra]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("photographs")
    done = make(folder, "--train", str(PER_CLASS), "--val", "1")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_files_are_baseline_jpegs_of_imagenet_size_with_halved_chroma(made: tuple[Path, str]) -> None:
    files = content(made[0])
    assert len(files) == CLASSES * (PER_CLASS + 1)
    for path in files:
        with Image.open(path) as image:
            assert isinstance(image, JpegImageFile)
            image.load()
            assert (image.format, image.size, image.mode) == ("JPEG", (500, 375), "RGB")
            assert not image.info.get("progressive")
            assert [component[1:3] for component in image.layer] == [(2, 2), (1, 1), (1, 1)]  # 4:2:0


def test_mean_size_is_that_of_imagenet(made: tuple[Path, str]) -> None:
    sizes = [len(data) for data in content(made[0]).values()]
    assert 95_000 < sum(sizes) / len(sizes) < 125_000


def test_every_class_is_in_both_splits_and_no_picture_occurs_twice(made: tuple[Path, str]) -> None:
    files = content(made[0])
    train = {path.parent.name for path in files if path.parent.parent.name == "train"}
    val = {path.parent.name for path in files if path.parent.parent.name == "val"}
    assert train == val
    assert len(train) == CLASSES
    assert len(set(files.values())) == len(files)


def test_one_line_says_what_was_made_and_where(made: tuple[Path, str]) -> None:
    folder, said = made
    assert said.count("\n") == 1
    assert f"{CLASSES * (PER_CLASS + 1)} photographs" in said
    assert str(folder) in said


def test_a_second_call_changes_nothing(made: tuple[Path, str]) -> None:
    folder, _ = made
    before = {path: path.stat().st_mtime_ns for path in content(folder)}
    done = make(folder, "--train", str(PER_CLASS), "--val", "1")
    assert "already there" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in content(folder)} == before


def test_missing_cut_and_empty_files_are_made_again_as_they_were(made: tuple[Path, str]) -> None:
    folder, _ = made
    before = content(folder)
    missing, cut, empty = list(before)[3], list(before)[10], list(before)[20]
    missing.unlink()
    cut.write_bytes(before[cut][:5000])
    empty.write_bytes(b"")
    done = make(folder, "--train", str(PER_CLASS), "--val", "1")
    assert "made 3 " in done.stdout
    assert content(folder) == before


def test_an_old_partial_file_of_a_killed_call_is_removed(made: tuple[Path, str]) -> None:
    folder, _ = made
    before = content(folder)
    left = next(iter(before)).parent / ".cat_0000.jpg.123.partial"
    left.write_bytes(b"\xff\xd8")
    old = time.time() - 3600
    os.utime(left, (old, old))
    make(folder, "--train", str(PER_CLASS), "--val", "1")
    assert content(folder) == before


def test_a_folder_that_cannot_be_written_is_one_line_and_code_2(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file, not a folder")
    done = make(taken, "--train", "1", "--val", "1")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(taken) in done.stderr


def test_default_folder_follows_xdg_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import photographs

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert photographs.default_folder() == tmp_path / "flatout" / "photographs"
