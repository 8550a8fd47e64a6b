from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

from flatout.machine.shm import left_in_shm, remove_left, shm_names


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_segment_is_left_when_the_process_in_its_name_is_gone(tmp_path: Path) -> None:
    (tmp_path / "torch_1_before_0").touch()
    before = shm_names(tmp_path)
    left = f"torch_{ended_pid()}_2894310377_3"
    for name in (left, f"torch_{os.getpid()}_2894310377_3"):
        (tmp_path / name).touch()
    assert left_in_shm(before, tmp_path) == [left]


def test_a_segment_without_a_pid_is_left_when_nobody_has_it_open_or_mapped(tmp_path: Path) -> None:
    before = shm_names(tmp_path)
    for name in ("psm_unused", "psm_open", "psm_mapped"):
        (tmp_path / name).write_bytes(b"x" * mmap.PAGESIZE)
    with open(tmp_path / "psm_open", "rb"), open(tmp_path / "psm_mapped", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        file.close()
        assert left_in_shm(before, tmp_path) == ["psm_unused"]
        mapped.close()
    assert left_in_shm(before, tmp_path) == ["psm_mapped", "psm_open", "psm_unused"]


def test_nothing_is_removed_and_nothing_new_is_an_empty_list(tmp_path: Path) -> None:
    (tmp_path / "psm_a").touch()
    assert left_in_shm(set(), tmp_path) == ["psm_a"]
    assert shm_names(tmp_path) == {"psm_a"}
    assert left_in_shm({"psm_a"}, tmp_path) == []


def test_only_new_segments_of_the_processes_that_were_ended_are_removed(tmp_path: Path) -> None:
    pid, other = ended_pid(), ended_pid()
    before = f"torch_{pid}_1_0"
    (tmp_path / before).touch()
    kept = {f"torch_{other}_1_0", f"torch_{os.getpid()}_1_0", "psm_unused"}
    for name in (f"torch_{pid}_2_1", *kept):
        (tmp_path / name).touch()
    remove_left({before}, {pid, os.getpid()}, tmp_path)
    assert shm_names(tmp_path) == {before, *kept}


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert shm_names(tmp_path / "missing") == set()
    assert left_in_shm(set(), tmp_path / "missing") == []
