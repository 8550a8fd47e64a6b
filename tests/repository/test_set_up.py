"""scripts/setup refuses what it cannot use, in one line; the versions that it installs are complete."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def setup(venv: Path, python: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "setup", venv],
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
    )


def stand_in(path: Path, version: str) -> Path:
    """A file that answers the two questions of scripts/setup as an interpreter of that version would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\ncase "$2" in *print*) echo {version};; *) exit 1;; esac\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def test_an_old_python_is_refused_in_one_line_and_nothing_is_made(tmp_path: Path) -> None:
    old = stand_in(tmp_path / "python3", "3.9.18")
    result = setup(tmp_path / "venv", old)
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        f"setup: '{old}' is Python 3.9.18; flatout needs 3.11 or newer: name one with PYTHON=python3.12"
    ]
    assert not (tmp_path / "venv").exists()


def test_a_python_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    result = setup(tmp_path / "venv", tmp_path / "nowhere")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "nowhere" in result.stderr


def test_an_existing_environment_with_an_old_python_is_refused(tmp_path: Path) -> None:
    stand_in(tmp_path / "venv" / "bin" / "python", "3.10.13")
    result = setup(tmp_path / "venv", "python3")
    assert result.returncode == 2
    assert "3.10.13" in result.stderr


@pytest.mark.parametrize("extra", ["core", "train", "stage", "dev"])
def test_every_dependency_has_an_exact_version_in_the_constraints(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] if extra == "core" else project["optional-dependencies"][extra]
    pinned = {
        line.partition("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][^ ]*", line)
    }
    named = {re.split(r"[<>=!~\[ ]", name)[0].lower() for name in wanted}
    assert named - {project["name"]} <= pinned  # an extra may bring other extras of this package
