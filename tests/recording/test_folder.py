"""Run folders: made whole or not at all, closed without a reader ever seeing half of one."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flatout.errors import UsageError
from flatout.probe.events import BATCH_WAIT, EVENT, HEADER_BYTES
from flatout.probe.writer import CHUNK_BYTES, EventFile
from flatout.record.events import read_events
from flatout.runner.folder import NEEDED_BYTES, exclusive, new_run, trim, write_run_json


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_run_is_named_after_the_script_and_never_reuses_a_folder(tmp_path: Path) -> None:
    command = ["python", "some where/my train.py", "--epochs", "3"]
    first, second = new_run(tmp_path, command), new_run(tmp_path, command)
    assert first != second
    assert all("-my-train" in path.name for path in (first, second))
    assert (first / "control").stat().st_size == 4096


def test_a_disk_without_room_is_refused_and_no_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(NEEDED_BYTES, 1, NEEDED_BYTES - 1))
    with pytest.raises(UsageError, match=r"63 MiB are free .* needs 64 MiB.*--runs-dir"):
        new_run(tmp_path, ["python"])
    assert list(tmp_path.iterdir()) == []


def test_the_lock_names_who_holds_it_and_is_free_again_afterwards(tmp_path: Path) -> None:
    with exclusive(tmp_path), pytest.raises(UsageError, match=f"process {os.getpid()}"), exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass


def test_a_full_disk_leaves_the_run_json_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run_json(tmp_path, {"stop": None})

    def full(path: Path, text: str, *args: Any, **kwargs: Any) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError, match="No space left on device"):
        write_run_json(tmp_path, {"stop": "steps"})
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert json.loads((tmp_path / "run.json").read_bytes()) == {"stop": None}


def test_trimming_gives_reserved_space_back_and_keeps_every_event(tmp_path: Path) -> None:
    (tmp_path / "processes").mkdir()
    path = tmp_path / "processes" / "4194305-1.events"
    written = CHUNK_BYTES // EVENT.size + 10  # more than the first chunk holds
    file = EventFile(str(path))
    for index in range(written):
        file.emit(BATCH_WAIT, index, index + 5, a=index)
    file.flush()
    (tmp_path / "processes" / "1-1.json.7.tmp").touch()
    assert trim(tmp_path) == []
    assert path.stat().st_size == HEADER_BYTES + written * EVENT.size
    assert read_events(path).events["a"].tolist() == list(range(written))
    assert not list((tmp_path / "processes").glob("*.tmp"))


def test_trimming_says_which_file_it_could_not_read_and_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "processes").mkdir()
    path = tmp_path / "processes" / "4194305-1.events"
    path.write_bytes(b"x" * 10_000)
    trim(tmp_path)
    assert path.stat().st_size == 10_000


def test_space_that_a_killed_recording_had_reserved_is_released_by_the_next(tmp_path: Path) -> None:
    killed = new_run(tmp_path, ["train.py"])
    write_run_json(killed, {"id": killed.name})
    with exclusive(tmp_path):
        assert not (killed / "reserve").exists()
        assert (killed / "control").exists()


def test_a_file_as_the_runs_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("")
    for folder in (file, file / "runs"):
        with (
            pytest.raises(UsageError, match=r"train\.py(/runs)?: not a folder, or inside a file"),
            exclusive(folder),
        ):
            raise AssertionError
    assert file.read_text() == ""


def test_a_run_folder_that_cannot_be_finished_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsageError, match=r"cannot write to .*File too large"):
        new_run(tmp_path, ["python", "train.py"])
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
