"""Folders as sources: links are followed and never for ever; what cannot be read is named and ends nothing."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from flatout import cli
from flatout.stage.outlook import look_ahead
from flatout.stage.selection import Selection, chosen_classes, selected
from flatout.stage.sources import folder_walk, retries
from flatout.stage.sources.folder import FolderSource
from flatout.stage.staging import stage


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("cat/1.jpg", "cat/2.jpg", "cow/3.jpg"):
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "set"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "GIVE_UP_S", 0.02)
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.001)


def failing(monkeypatch: pytest.MonkeyPatch, function: str, name: str, error: OSError) -> None:
    """``os.function`` fails for paths that end with a name; root, who runs tests in containers, may read all."""
    usual = getattr(os, function)

    def fails(path: str) -> object:
        if str(path).endswith(name):
            raise error
        return usual(path)

    monkeypatch.setattr(folder_walk.os, function, fails)


def keys(source: Path, prefix: str = "") -> list[str]:
    return sorted(obj.key for obj in FolderSource(source).objects(prefix))


ALL = ["cat/1.jpg", "cat/2.jpg", "cow/3.jpg"]


def test_a_class_that_is_a_link_is_taken_by_every_way_of_listing(source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/4.jpg").write_bytes(b"dog")
    (source / "dog").symlink_to(tmp_path / "elsewhere")
    (source / "link.jpg").symlink_to(source / "cat/1.jpg")
    assert keys(source) == sorted([*ALL, "dog/4.jpg", "link.jpg"]) and keys(source, "dog") == ["dog/4.jpg"]
    opened = FolderSource(source)
    assert opened.folders() == ["cat", "cow", "dog"]
    chosen = Selection(class_names=("dog",))
    assert [obj.key for obj in selected(opened, chosen, chosen_classes(opened, chosen))] == ["dog/4.jpg"]
    outlook = look_ahead(FolderSource(source), tmp_path / "dest", Selection())
    assert outlook is not None and outlook.files == 5
    assert stage(FolderSource(source), tmp_path / "dest", Selection()).copied == 5
    assert (tmp_path / "dest/dog/4.jpg").read_bytes() == b"dog" and not (tmp_path / "dest/dog").is_symlink()


def test_links_that_lead_back_or_nowhere_are_passed_over_and_named(source: Path, tmp_path: Path) -> None:
    (source / "self").symlink_to("self")
    (source / "up").symlink_to("..")
    (source / "cat/here").symlink_to(".")
    (source / "cat/root").symlink_to(source)
    (source / "a").symlink_to("b")
    (source / "b").symlink_to("a")
    (source / "gone").symlink_to("/nonexistent/file")
    (tmp_path / "beside").write_bytes(b"beside")
    summary = stage(FolderSource(source), tmp_path.parent / f"{tmp_path.name}-dest", Selection())
    assert summary.n_failed == 0 and summary.copied == len(ALL) + 1  # what lies beside comes by the link upwards, once
    assert summary.n_refused == 7
    assert any("leads back" in why for why in summary.refused_examples) and any(
        "nowhere" in why for why in summary.refused_examples
    )


def test_two_folders_that_link_each_other_end(source: Path) -> None:
    (source / "cat/to_cow").symlink_to(source / "cow")
    (source / "cow/to_cat").symlink_to(source / "cat")
    assert keys(source) == sorted([*ALL, "cat/to_cow/3.jpg", "cow/to_cat/1.jpg", "cow/to_cat/2.jpg"])


def test_what_is_no_file_is_passed_over_and_named(source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "pipe")
    (source / "empty").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(source / "socket"))
        opened = FolderSource(source)
        summary = stage(opened, tmp_path / "dest", Selection())
    assert (summary.copied, summary.n_failed, summary.n_refused) == (3, 0, 2)
    assert sorted(summary.refused_examples) == ["'pipe': a pipe, and no file", "'socket': a socket, and no file"]


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
def test_a_folder_that_cannot_be_read_is_a_failure_and_the_rest_arrives(
    source: Path,
    tmp_path: Path,
    error: OSError,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    failing(monkeypatch, "listdir", "cow", error)
    assert cli.main(["stage", str(source), str(tmp_path / "dest"), "--quiet", "--json", *arguments]) == 1
    told = capfd.readouterr()
    found = json.loads(told.out)
    assert error.strerror in told.out + told.err and f"{source}/cow" in told.out + told.err
    assert found["files" if arguments else "copied"] == 2


def test_files_below_a_folder_that_cannot_be_read_are_not_taken_for_gone(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "lstat", "cow/3.jpg", PermissionError(13, "Permission denied"))
    opened = FolderSource(source)
    assert sorted(obj.key for obj in opened.objects()) == ALL[:2]
    assert opened.unlisted and opened.skipped.hides("cow/3.jpg") and opened.skipped.hides("cow/x/y")
    assert not opened.skipped.hides("cows/3.jpg") and not opened.skipped.hides("cat/1.jpg")


def test_a_folder_that_vanishes_while_it_is_listed_ends_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "listdir", "cow", FileNotFoundError(2, "No such file or directory"))
    summary = stage(FolderSource(source), tmp_path / "dest", Selection())
    assert (summary.copied, summary.n_failed, summary.n_refused) == (2, 0, 1) and "removed" in summary.refused_examples[
        0
    ]


def test_a_tree_deeper_than_a_path_may_be_ends_nothing(source: Path, tmp_path: Path) -> None:
    here = os.getcwd()
    os.chdir(source)
    try:
        for _ in range(20):
            os.mkdir(250 * "d")
            os.chdir(250 * "d")
        Path("deep.jpg").write_bytes(b"deep")
    finally:
        os.chdir(here)
    summary = stage(FolderSource(source), tmp_path / "dest", Selection())
    assert summary.copied == 3 and summary.n_failed == 1 and "too long" in summary.failed_examples[0]


@pytest.mark.parametrize("arguments", [[], ["--dry-run"], ["--pack"], ["--classes-from", "LIST"]])
def test_an_empty_folder_is_an_error_that_leaves_nothing(
    tmp_path: Path, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source/empty").mkdir(parents=True)
    (tmp_path / "classes").write_text("empty\n")
    words = [word if word != "LIST" else str(tmp_path / "classes") for word in arguments]
    assert cli.main(["stage", str(tmp_path / "source"), str(tmp_path / "dest"), "--quiet", *words]) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["classes", "source"]


@pytest.mark.parametrize("text", ['["a"', '{"a": 1}', "[[1]]", "[null]", '["a", {"b": 2}]'])
def test_a_list_of_classes_that_is_none_is_one_line(
    source: Path, tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "list.json").write_text(text)
    words = ["stage", str(source), str(tmp_path / "dest"), "--classes-from", str(tmp_path / "list.json")]
    assert cli.main(words) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "--classes-from" in said
