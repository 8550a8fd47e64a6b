"""Which objects are chosen: the same ones whatever the order, and the same classes in every split."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.stage.selection import Selection, chosen_classes, read_class_list, selected
from flatout.stage.sources.folder import FolderSource


@pytest.fixture
def source(tmp_path: Path) -> FolderSource:
    for split, count in (("train", 6), ("val", 2)):
        for name in "abcdefgh":
            for number in range(count):
                path = tmp_path / split / name / f"{number}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(name.encode())
    (tmp_path / "readme.txt").write_text("about")
    return FolderSource(tmp_path)


def keys(source: FolderSource, selection: Selection) -> set[str]:
    return {obj.key for obj in selected(source, selection, chosen_classes(source, selection))}


def test_without_a_wish_everything_is_chosen(source: FolderSource) -> None:
    assert len(keys(source, Selection())) == 8 * 6 + 8 * 2 + 1


def test_drawn_classes_are_the_same_in_every_split_and_follow_the_documented_draw(source: FolderSource) -> None:
    chosen = keys(source, Selection(splits=("train", "val"), classes=3, seed=42))
    expected = set(random.Random(42).sample(sorted("abcdefgh"), 3))
    for split in ("train", "val"):
        assert {key.split("/")[1] for key in chosen if key.startswith(split)} == expected
    assert keys(source, Selection(splits=("train",), classes=3, seed=1)) != keys(
        source, Selection(splits=("train",), classes=3, seed=42)
    )


def test_per_class_counts_each_class_of_each_split(source: FolderSource) -> None:
    chosen = keys(source, Selection(splits=("train", "val"), per_class=2, classes=4))
    assert len(chosen) == 2 * 4 * 2


def test_patterns_include_and_exclude(source: FolderSource) -> None:
    assert keys(source, Selection(include=("*.txt",))) == {"readme.txt"}
    assert len(keys(source, Selection(include=("train/*",), exclude=("*/a/*", "*/b/*")))) == 6 * 6


def test_a_sample_holds_about_its_share_and_does_not_depend_on_what_else_is_there(source: FolderSource) -> None:
    half = keys(source, Selection(share=0.5))
    assert 12 <= len(half) <= 53
    assert {key for key in half if key.startswith("val")} == keys(source, Selection(share=0.5, splits=("val",)))


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection(splits=("test",)), "--splits test: no such folder in the source: it has train, val"),
        (Selection(splits=("train",), classes=9), "--classes 9: there are only 8 classes"),
        (Selection(splits=("train",), class_names=("a", "zebra")), "does not have: zebra"),
    ],
)
def test_what_is_not_there_is_refused_by_name(source: FolderSource, selection: Selection, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        chosen_classes(source, selection)


def test_a_class_list_is_json_or_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('["x", "y"]')
    (tmp_path / "b").write_text("x\n\n y \n")
    assert read_class_list(tmp_path / "a") == read_class_list(tmp_path / "b") == ("x", "y")
    (tmp_path / "c").write_text("\n")
    with pytest.raises(UsageError, match="no class names"):
        read_class_list(tmp_path / "c")
