"""The folder that what is read lies below: as deep as it may be, and on the mount that most files are on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.measure.storage import data_folder, files_per_sample, opens_per_file

MOUNTS = [{"point": "/", "kind": "nvme"}, {"point": "/mnt/s3", "kind": "rclone"}]


def process(dirs: dict[str, int], cwd: str = "/home/me", sampled: dict[str, int] | None = None) -> Any:
    files = {"dirs": dirs, "sampled": sampled or {}}
    return SimpleNamespace(
        info={"cwd": cwd, "executable": "/opt/python/bin/python3"}, names=SimpleNamespace(files=files)
    )


@pytest.mark.parametrize(
    ("dirs", "found"),
    [
        ({"/mnt/s3/set/train/c1": 500, "/mnt/s3/set/train/c2": 400}, "/mnt/s3/set/train"),
        ({"/mnt/s3/set/train/c1": 500, "/mnt/s3/set/val/c1": 50}, "/mnt/s3/set"),
        ({"/mnt/s3/set/train/c1": 5_000, "/mnt/s3/notes": 3}, "/mnt/s3/set/train/c1"),  # all but one in a hundred
        ({"/mnt/s3/a": 500, "/home/me/b": 400}, "/mnt/s3/a"),
        ({"data/train": 500}, "/home/me/data/train"),  # relative to where the process runs
        ({"/mnt/s3": 5, "/mnt/s3/a": 5}, "/mnt/s3"),
        ({"/usr/lib/python3.11/json": 900, "/data/x": 20}, "/data/x"),
        ({"/home/me/src/flatout/probe/on_pythonpath": 900, "/home/me/.flatout/runs/a": 90, "/data/x": 2}, "/data/x"),
        ({"/opt/python/lib/encodings": 900, "/usr/share/zoneinfo": 5}, None),  # the interpreter's own library
        ({"/data/x": 20, "/home/me/cache": 20}, "/"),
        ({}, None),
    ],
)
def test_the_deepest_folder_is_found(dirs: dict[str, int], found: str | None) -> None:
    run: Any = SimpleNamespace(machine={"mounts": MOUNTS}, path=Path())
    assert data_folder(run, [process(dirs)]) == found


def test_files_that_stay_open_count_too() -> None:
    run: Any = SimpleNamespace(machine={"mounts": MOUNTS}, path=Path())
    assert data_folder(run, [process({}, sampled={"/mnt/s3/volumes": 9})]) == "/mnt/s3/volumes"


def test_files_that_are_opened_again_are_counted_once() -> None:
    one, other = process({"/data/a": 30, "data/b": 10, "/usr/lib/python3.11/json": 900}), process({"/data/a": 20})
    assert opens_per_file([one, other]) == (None, 0)  # a record of an older version
    one.names.files["again"], other.names.files["again"] = {"/data/a": 20, "data/b": 5}, {}
    assert opens_per_file([one, other]) == (60 / 35, 35)
    assert files_per_sample([one, other], 30) == 2.0
