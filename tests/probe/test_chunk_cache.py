"""HDF5 files that are read get the larger cache; those that are written, or say their own, stay as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.runner.command import injecting_environment

pytest.importorskip("h5py")

SCRIPT = """
import pathlib
import h5py, numpy, torch

def cache(file):
    return file.id.get_access_plist().get_cache()[1:3]

with h5py.File("set.h5", "w") as file:
    print(cache(file))
    file["x"] = numpy.arange(1000)
for path in ("set.h5", pathlib.Path("set.h5")):
    with h5py.File(path) as file:
        print(cache(file), int(file["x"][10:20].sum()))
with h5py.File("set.h5", "r", rdcc_nbytes=5_000_000) as file:
    print(cache(file))
with h5py.File("set.h5", "r+") as file:
    print(cache(file))
"""


@pytest.mark.slow
def test_only_files_that_are_read_get_a_larger_cache(tmp_path: Path) -> None:
    script = tmp_path / "reading.py"
    script.write_text(SCRIPT)

    def printed(settings: dict[str, int]) -> list[str]:
        environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)}
        words = [sys.executable, str(script)]
        done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    written, _, _, own, changed = printed({})
    seen = printed({"chunk_cache_bytes": 1 << 28})
    assert seen == [written, "(100003, 268435456) 145", "(100003, 268435456) 145", own, changed]
