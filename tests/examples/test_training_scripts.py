"""The example trainings run as they are, differ by one correction, and keep to their folders."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    maker = [sys.executable, str(EXAMPLES / "photographs.py"), "--data", str(folder), "--train", "1", "--val", "1"]
    subprocess.run(maker, check=True, capture_output=True, timeout=250)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("script", ["train.py", "train_fixed.py"])
def test_two_steps_write_a_checkpoint_and_nothing_else(
    script: str, data: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    home, cwd, out = (tmp_path / name for name in ("home", "cwd", "out"))
    for folder in (home, cwd):
        folder.mkdir()
    # Short, since sockets are made in it, whose names may have 107 characters in all.
    temporary = Path(tempfile.mkdtemp(prefix="f"))
    request.addfinalizer(lambda: shutil.rmtree(temporary, ignore_errors=True))
    environment = os.environ | {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        # torch makes this folder at its import, whatever the script does.
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    command = [sys.executable, str(EXAMPLES / script), "--data", str(data), "--out", str(out)]
    bounds = ["--epochs", "1", "--batch-size", "4", "--workers", "1"]
    before = sorted(data.rglob("*"))
    done = subprocess.run(command + bounds, cwd=cwd, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "validation accuracy" in done.stdout
    assert [path.name for path in out.iterdir()] == ["checkpoint.pt"]
    assert [path for folder in (home, cwd, temporary) for path in folder.rglob("*")] == []
    assert sorted(data.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("script", ["train.py", "train_fixed.py"])
def test_missing_data_is_said_before_anything_is_done(script: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / script), "--data", str(tmp_path / "no"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 2
    assert "has no folder train" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_correction_moves_the_crop_and_nothing_else() -> None:
    mistaken, fixed = (
        (EXAMPLES / name).read_text().partition("\nimport")[2] for name in ("train.py", "train_fixed.py")
    )
    changed = [line for line in difflib.ndiff(mistaken.splitlines(), fixed.splitlines()) if line[0] in "+-"]
    assert sorted(line[0] for line in changed) == ["+", "-"]
    assert changed[0][2:] == changed[1][2:]  # one line, moved past its neighbour
    assert fixed.index("RandomResizedCrop(") < fixed.index("ColorJitter(")
    assert mistaken.index("RandomResizedCrop(") > mistaken.index("ColorJitter(")
