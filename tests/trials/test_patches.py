"""Patches as people and programs write them apply to copies; what does not apply is refused in one line."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.trials.file_changes import FileChanges
from flatout.trials.patches import Patch, apply_patch

BEFORE = "import torch\n\nworkers = 2\nbatch = 8\n\nprint(workers)\n"
AFTER = BEFORE.replace("workers = 2", "workers = 4")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a subfolder, nothing changed."""
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    for name in ("train.py", "src/model.py", "src/with space.py"):
        (root / name).write_text(BEFORE)
    (root / "src/crlf.py").write_bytes(BEFORE.replace("\n", "\r\n").encode())
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    return root


def git(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-c", "core.autocrlf=false", *words], cwd=root, capture_output=True, check=True)
    return done.stdout


def diffed(root: Path, *options: str) -> bytes:
    """The working tree's changes as a patch; the tree is as it was afterwards."""
    git(root, "add", "-A")
    text = git(root, "diff", "--cached", *options)
    git(root, "reset", "-q", "--hard")
    return text


def applied(text: bytes, here: Path) -> dict[str, str | None]:
    """Changed files by their names, with their new text."""
    changes, backward = apply_patch(Patch.read("change.diff", text), here.parent / "copies", here)
    assert not backward
    return {path.name: copy.read_bytes().decode() if copy else None for path, copy in changes.files.items()}


def test_git_diff_changes_copies_and_no_file(project: Path) -> None:
    (project / "train.py").write_text(AFTER)
    text = diffed(project)
    assert applied(text, project) == {"train.py": AFTER}
    assert (project / "train.py").read_text() == BEFORE


@pytest.mark.parametrize("options", [(), ("--no-prefix",), ("--unified=0",), ("--relative",)])
def test_names_relative_to_the_repository_apply_in_a_subfolder(project: Path, options: tuple[str, ...]) -> None:
    (project / "src/model.py").write_text(AFTER)
    git(project, "add", "-A")
    text = git(project / "src", "diff", "--cached", *options)
    git(project, "reset", "-q", "--hard")
    assert applied(text, project / "src") == {"model.py": AFTER}


def test_new_deleted_and_renamed_files(project: Path) -> None:
    (project / "new folder").mkdir()
    (project / "new folder/fast.py").write_text("new = True\n")
    (project / "src/model.py").unlink()
    (project / "train.py").rename(project / "train_b.py")
    text = diffed(project, "-M")
    assert b"rename from" in text
    assert applied(text, project) == {
        "fast.py": "new = True\n",
        "model.py": None,
        "train.py": None,
        "train_b.py": BEFORE,
    }


def test_a_path_with_spaces_and_one_that_git_quotes(project: Path) -> None:
    (project / "src/with space.py").write_text(AFTER)
    (project / "größe.py").write_text(AFTER)
    assert applied(diffed(project), project) == {"with space.py": AFTER, "größe.py": AFTER}


def test_other_line_ends_on_either_side(project: Path) -> None:
    (project / "src/crlf.py").write_bytes(AFTER.replace("\n", "\r\n").encode())
    (project / "train.py").write_text(AFTER)
    text = diffed(project)
    assert applied(text, project)["crlf.py"] == AFTER.replace("\n", "\r\n")
    for wrong in (text.replace(b"\r\n", b"\n"), text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")):
        found = applied(wrong, project)
        assert {name: (new or "").replace("\r", "") for name, new in found.items()} == {
            "crlf.py": AFTER,
            "train.py": AFTER,
        }


def test_diff_u_of_a_copy_changes_the_file_itself(project: Path) -> None:
    (project / "train_b.py").write_text(AFTER)
    done = subprocess.run(["diff", "-u", "train.py", "train_b.py"], cwd=project, capture_output=True, check=False)
    (project / "train_b.py").unlink()
    assert applied(done.stdout, project) == {"train.py": AFTER}


@pytest.mark.parametrize(
    ("old", "new"), [("train.py", "b.py"), ("train.py", "train_b.py"), ("train.py.orig", "train.py")]
)
def test_diff_u_of_a_copy_that_is_still_there_changes_the_file_itself(project: Path, old: str, new: str) -> None:
    (project / old).write_text(BEFORE)
    (project / new).write_text(AFTER)
    done = subprocess.run(["diff", "-u", old, new], cwd=project, capture_output=True, check=False)
    (project / "train.py").write_text(BEFORE)
    assert applied(done.stdout, project) == {"train.py": AFTER}


def test_counts_that_are_wrong_and_a_missing_last_line_end(project: Path) -> None:
    text = (
        b"--- a/train.py\n+++ b/train.py\n@@ -1,9 +1,9 @@\n import torch\n \n-workers = 2\n+workers = 4\n batch = 8\n "
        b"\n print(workers)"
    )
    assert applied(text, project) == {"train.py": AFTER}


def test_a_change_that_the_files_have_already_is_taken_out(project: Path) -> None:
    (project / "train.py").write_text(AFTER)
    text = git(project, "diff")
    changes, backward = apply_patch(Patch.read("change.diff", text), project.parent / "copies", project)
    assert backward
    assert [copy.read_text() for copy in changes.files.values() if copy] == [BEFORE]


def test_one_patch_on_top_of_another(project: Path) -> None:
    (project / "train.py").write_text(AFTER)
    first = diffed(project)
    (project / "train.py").write_text(AFTER)
    git(project, "add", "-A")
    (project / "train.py").write_text(AFTER.replace("batch = 8", "batch = 16"))
    second = git(project, "diff")
    git(project, "reset", "-q", "--hard")
    changes, _ = apply_patch(Patch.read("a", first), project.parent / "1", project)
    assert isinstance(changes, FileChanges)
    later, _ = apply_patch(Patch.read("b", second), project.parent / "2", project, changes)
    (copy,) = changes.on_top(later).files.values()
    assert copy is not None and copy.read_text() == AFTER.replace("batch = 8", "batch = 16")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"workers = 4\n", "names no file"),
        (b"--- a/gone.py\n+++ b/gone.py\n@@ -1 +1 @@\n-a\n+b\n", "no such file"),
        (b"--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-other\n+b\n", "does not apply: patch failed: train.py:1"),
        (b"--- a/../../etc/passwd\n+++ b/../../etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", "does not apply"),
        (b"--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n import torch\n \n", "change.diff"),
    ],
)
def test_what_cannot_be_applied_is_one_line(project: Path, text: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=r"--patch change\.diff") as refused:
        applied(text, project)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_patch_does_it_where_there_is_no_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("patch") is None:
        pytest.skip("no patch here")
    (project / "train.py").write_text(AFTER)
    text = diffed(project)
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "git" else found(name))
    assert applied(text, project) == {"train.py": AFTER}
    with pytest.raises(UsageError, match="does not apply"):
        applied(text.replace(b"batch = 8", b"batch = 9"), project)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="needs git or patch"):
        applied(text, project)


def test_a_file_that_a_private_view_cannot_change_is_refused(tmp_path: Path) -> None:
    place = Path("/dev/shm") / f"flatout-{tmp_path.name}"
    place.mkdir()
    try:
        (place / "train.py").write_text("a\n")
        text = b"--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-a\n+b\n"
        with pytest.raises(UsageError, match="/dev"):
            apply_patch(Patch.read("change.diff", text), tmp_path / "copies", place)
    finally:
        shutil.rmtree(place)


def test_no_more_of_a_patch_is_read_than_it_may_have() -> None:
    with pytest.raises(UsageError, match="--patch /dev/zero: larger than"):
        Patch.read("/dev/zero")
