"""A database or a mapped array is seen; logs, what is only read, and deleted files are not."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.probe.experiments.changeable_files import changeable_file
from flatout.probe.recorder import REC


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REC, "run", str(tmp_path / "run"))


@contextlib.contextmanager
def opened(path: Path, mode: str) -> Iterator[Any]:
    path.touch()
    with path.open(mode) as file:
        yield file


def test_a_database_is_seen(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "results.db")) as database:
        database.execute("create table results (step)")
        assert changeable_file() == "results.db"


def test_a_mapped_array_is_seen(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "outputs.bin", np.float32, "w+", shape=(8,))
    assert changeable_file() == "outputs.bin"
    del array


@pytest.mark.parametrize("mode", ["r", "a", "w"])
def test_logs_and_data_are_not(tmp_path: Path, mode: str) -> None:
    with opened(tmp_path / "log.csv", mode), tempfile.TemporaryFile():
        assert changeable_file() is None


def test_files_of_the_recording_are_not(tmp_path: Path) -> None:
    # The folder of runs may be reached through a link.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with opened(tmp_path / "run" / "control", "r+b"):
        assert changeable_file() is None
