"""A daemon closes every descriptor that it finds open: the probe's numbers then belong to the script's own files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.end_to_end.profiling import TRAIN, profile, script

CLOSE = """os.closerange(3, 400)
        files = [open(f"own-{number}.txt", "a") for number in range(20)]
        """


@pytest.mark.slow
def test_a_script_that_closes_all_descriptors_finds_nothing_foreign_in_its_files(tmp_path: Path) -> None:
    source = TRAIN.replace("loader = ", f"{CLOSE}loader = ")
    done = profile(tmp_path, sys.executable, script(tmp_path, source), "30", "0.01", "0")
    assert done.code == 0, done.err
    assert [path.name for path in sorted(tmp_path.glob("own-*.txt")) if path.stat().st_size] == []
