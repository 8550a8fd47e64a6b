"""Writes of a trial never reach the user's files, and nothing is left of them."""

import subprocess
from pathlib import Path

import pytest

from flatout.trials import isolation
from flatout.trials.isolation import NAMESPACE, REDIRECTED, find_isolation, scratch_folder, wrapped


@pytest.fixture
def private(tmp_path: Path) -> Path:
    found = find_isolation(tmp_path / "fix")
    if found.kind != NAMESPACE:
        pytest.skip(f"no private mount namespace here: {found.because}")
    return tmp_path / "fix"


def test_what_is_written_anywhere_stays_in_the_scratch_folder(private: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("kept")
    kept = tmp_path / "runs"
    kept.mkdir()
    script = "echo lost > precious.txt; echo new > made.txt; rm -f gone.txt; echo real > runs/record; cat precious.txt"
    (tmp_path / "gone.txt").write_text("still there")
    with scratch_folder(private) as scratch:
        done = subprocess.run(
            wrapped(["sh", "-c", script], scratch, [kept]), cwd=tmp_path, capture_output=True, text=True, check=True
        )
    assert done.stdout == "lost\n"
    assert (tmp_path / "precious.txt").read_text() == "kept" and (tmp_path / "gone.txt").is_file()
    assert not (tmp_path / "made.txt").exists() and (kept / "record").read_text() == "real\n"
    assert list(private.iterdir()) == []


def test_the_command_keeps_its_folder_its_user_and_its_exit_code(private: Path, tmp_path: Path) -> None:
    with scratch_folder(private) as scratch:
        done = subprocess.run(
            wrapped(["sh", "-c", "pwd; id -u; exit 7"], scratch, []), cwd=tmp_path, capture_output=True, text=True
        )
        here = subprocess.run(["sh", "-c", "pwd; id -u"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert done.stdout == here and done.returncode == 7


def test_without_namespaces_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = ["sh", "-c", "echo 'a private mount namespace: Operation not permitted' >&2; exit 125"]
    monkeypatch.setattr(isolation, "wrapped", lambda *_: refusing)
    found = find_isolation(tmp_path)
    assert found.kind == REDIRECTED
    assert "C libraries" in found.describe() and "Operation not permitted" in found.describe()
