"""The options of ``flatout try`` as candidates, and every way in which they make none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flatout.errors import FlatoutError, UsageError
from flatout.trials.candidates import Candidate, Given, read_candidates
from flatout.trials.patches import Patch

PATCH = b"--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "train.py").write_text("a = 1\n")
    (root / "cfg.yaml").write_text("# mine\ntrain:\n  lr: 0.1  # why\n  epochs: 3\nval:\n  epochs: 1\n")
    monkeypatch.chdir(root)
    return root


def made(project: Path, given: Given, *more: str) -> list[Candidate]:
    words = (sys.executable, "train.py", "--config", "cfg.yaml", *more)
    return read_candidates(given, words, project.parent / "changes", project)


def test_each_option_is_a_candidate(project: Path) -> None:
    given = Given([Patch("p", PATCH)], ["num_workers=4"], ["A=1", "B=x=y"], ["lr=0.2"], [f"{sys.executable} b.py"])
    found = made(project, given)
    assert [bool(one.files.files) for one in found] == [True, False, False, False, True, False]
    assert found[1].settings == {"num_workers": 4}
    assert [one.environment for one in found[2:4]] == [{"A": "1"}, {"B": "x=y"}]
    assert found[5].command == (sys.executable, "b.py")


def test_together_they_are_one(project: Path) -> None:
    given = Given([Patch("p", PATCH)], ["num_workers=4"], ["A=1"], ["lr=0.2", "train.epochs=5"], together=True)
    (one,) = made(project, given)
    assert (one.settings, one.environment) == ({"num_workers": 4}, {"A": "1"})
    texts = {path.name: copy.read_text() for path, copy in one.files.files.items() if copy}
    assert texts["train.py"] == "a = 2\n"
    assert texts["cfg.yaml"] == "# mine\ntrain:\n  lr: 0.2  # why\n  epochs: 5\nval:\n  epochs: 1\n"


def test_pythonpath_keeps_the_probe_in_front(project: Path) -> None:
    (one,) = made(project, Given(variables=["PYTHONPATH=lib"]))
    assert one.environment["PYTHONPATH"].endswith(":lib") and "flatout" in one.environment["PYTHONPATH"]


def test_a_change_that_the_files_have_is_taken_out_if_it_is_the_only_candidate(project: Path) -> None:
    (project / "train.py").write_text("a = 2\n")
    (one,) = made(project, Given([Patch("p", PATCH)]))
    assert one.taken_out.files and not one.files.files and list(one.patched.files) == [project / "train.py"]
    with pytest.raises(UsageError, match="have this change already"):
        made(project, Given([Patch("p", PATCH)], variables=["A=1"]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Given(), "nothing to try"),
        (Given(settings=["no_such=1"]), "there is no setting 'no_such'"),
        (Given(settings=["num_workers"]), "write NAME=VALUE"),
        (Given(variables=["A"]), "write NAME=VALUE"),
        (Given(variables=["FLATOUT_RUN=x"]), "leave it out"),
        (Given(variables=["A=1", "A=1"]), "given twice"),
        (Given(keys=["lr"]), "write KEY=VALUE"),
        (Given(keys=["lrr=1"]), "no such key"),
        (Given(keys=["train.lrr=1"]), "did you mean train.lr?"),
        (Given(keys=["epochs=1"]), "could be train.epochs or val.epochs"),
        (Given(keys=["lr=0.1"]), "is 0.1 already"),
        (Given(commands=[""]), "is empty"),
        (Given(commands=["a 'b"]), "close its quotes"),
        (Given(commands=["no-such-program"]), "command not found"),
        (Given(commands=[sys.executable, f"{sys.executable} b"], together=True), "cannot be one"),
    ],
)
def test_what_makes_no_candidate_is_one_line(project: Path, given: Given, said: str) -> None:
    with pytest.raises(FlatoutError) as refused:
        made(project, given)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_key_needs_a_config_file_in_the_command(project: Path) -> None:
    with pytest.raises(UsageError, match="names no config file"):
        read_candidates(Given(keys=["lr=1"]), (sys.executable, "train.py"), project.parent / "changes", project)
