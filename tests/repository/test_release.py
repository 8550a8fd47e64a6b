"""scripts/release.py --check: what cannot be released is refused in one line."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "release.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A committed project whose version has its section in the changelog."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-11-22)\n\n- News.\n\n## 1.1.0 (2026-10-01)\n")
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("# News\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    names = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "state")


def check(folder: Path) -> tuple[int, str]:
    words = [sys.executable, folder / "scripts" / "release.py", "--check"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_clean_commit_with_its_changelog_can_be_released(project: Path) -> None:
    assert check(project) == (0, "")


def test_a_file_that_is_not_committed_is_named(project: Path) -> None:
    (project / "new.py").touch()
    code, told = check(project)
    assert code == 2 and told.count("\n") == 1 and "'new.py'" in told


def test_a_version_that_is_tagged_is_refused(project: Path) -> None:
    git(project, "tag", "v1.2.0")
    assert check(project) == (2, "release: v1.2.0 is tagged already: raise `version` in pyproject.toml\n")


@pytest.mark.parametrize("heading", ["1.2.0 (unreleased)", "1.2.0", "11.2.0 (2026-11-22)", "1.2.0rc1 (2026-11-22)"])
def test_a_changelog_without_the_version_and_its_day_is_refused(project: Path, heading: str) -> None:
    (project / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")
    commit(project)
    code, told = check(project)
    assert code == 2 and f"'## {heading}'" in told and "'## 1.2.0 (YYYY-MM-DD)' is needed" in told


def test_news_that_are_not_in_the_changelog_are_refused(project: Path) -> None:
    (project / "changes" / "+faster.added.md").write_text("It is faster.\n")
    commit(project)
    code, told = check(project)
    assert code == 2 and "'+faster.added.md'" in told and "make changelog" in told
