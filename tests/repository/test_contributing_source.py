"""The section "Add a source" of CONTRIBUTING.md, followed literally in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Step 1: one file. Five objects of text, in two folders; the version changes with the length that the address asks for.
SOURCE = """
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure


class CountingSource(Source):
    def __init__(self, address):
        self.address = address
        self._length = int(address.removeprefix("counting://"))

    def objects(self, prefix=""):
        for number in range(5):
            key = f"{'odd' if number % 2 else 'even'}/{number}.txt"
            if key.startswith(f"{prefix}/" if prefix else ""):
                yield ObjectInfo(key, self._length, f"{self._length} digits")

    def folders(self, prefix=""):
        return [] if prefix else ["even", "odd"]

    def stream(self, obj, buffer, start=0, length=None):
        if obj.key not in {known.key for known in self.objects()}:
            raise Failure("gone", f"{obj.key}: no such number")
        data = (obj.key[-5] * self._length).encode()
        yield memoryview(data[start : None if length is None else start + length])
"""
# Step 2: the table of schemes.
OPENER = """
def _counting(address: str, options: StoreOptions) -> Source:
    from flatout.stage.sources.counting import CountingSource

    return CountingSource(address)

"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of ``src`` with the steps done."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a source")[2].partition("\n## ")[0]
    assert [int(step) for step in re.findall(r"^(\d)\. ", section, re.M)] == [1, 2, 3]
    named = re.findall(r"`(src/flatout/[\w/.]+)`", section)
    assert named == ["src/flatout/stage/sources/", "src/flatout/stage/sources/open.py", "src/flatout/extras.py"]
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / named[0] / "counting.py").write_text(SOURCE)
    table = tmp_path / named[1]
    before = table.read_text()
    after = before.replace("SCHEMES: dict[", f"{OPENER.lstrip()}\nSCHEMES: dict[", 1)
    after = after.replace("= {\n", '= {\n    "counting": _counting,\n', 1)
    assert after.count("_counting") == 2 and "SCHEMES" in section
    table.write_text(after)
    return tmp_path


def staged(package: Path, *words: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "flatout", "stage", *words, "--json", "--quiet"],
        env={**os.environ, "PYTHONPATH": str(package / "src")}, cwd=package, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary: dict[str, int] = json.loads(done.stdout)
    return summary


def test_a_source_is_one_file_and_a_line_in_the_table(package: Path) -> None:
    # Step 3: everything arrives, a second staging transfers nothing, and a change arrives.
    dest = package / "dest"
    done = staged(package, "counting://3", str(dest))
    assert (done["copied"], done["n_failed"], done["total_bytes"]) == (5, 0, 15)
    assert (dest / "odd/3.txt").read_text() == "333" and (dest / "even/0.txt").read_text() == "000"
    again = staged(package, "counting://3", str(dest))
    assert (again["copied"], again["kept"]) == (0, 5)
    part = staged(package, "counting://4", str(package / "part"), "--classes", "1", "--seed", "1")
    assert part["copied"] in (2, 3) and part["total_bytes"] == 4 * part["copied"]
    (dest / "odd/3.txt").unlink()
    assert staged(package, "counting://3", str(dest))["copied"] == 1
