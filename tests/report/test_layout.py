"""Wrapping, shortening and bars."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from flatout.report.layout import Glyphs, shell_lines, short_command, shorten_middle, wrap


@given(st.text(), st.integers(min_value=4, max_value=40))
def test_wrap_keeps_every_character_within_the_width(text: str, width: int) -> None:
    clean = Glyphs().text(text)
    lines = wrap(clean, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(clean.split()).replace(" ", "")


@given(st.text(min_size=1), st.integers(min_value=3, max_value=40))
def test_shorten_middle_stays_within_the_width(text: str, width: int) -> None:
    assert cell_len(shorten_middle(Glyphs().text(text), width, "…")) <= width


def test_a_path_that_is_too_long_is_broken_between_folders() -> None:
    assert wrap("see /data/experiments/training/a_long_name.py:12 here", 40) == [
        "see",
        "/data/experiments/training/",
        "a_long_name.py:12 here",
    ]
    assert wrap("/a/" + 50 * "x", 40) == ["/a/" + 37 * "x", 13 * "x"]


def test_shorten_middle_keeps_the_file_name_of_a_path() -> None:
    short = shorten_middle("/home/somebody/projects/imagenet/training/train.py", 24, "…")
    assert short.startswith("/home")
    assert short.endswith("train.py")


@pytest.mark.parametrize("width", [10, 24])
def test_bar_is_empty_only_for_nothing(width: int) -> None:
    for glyphs in (Glyphs(True), Glyphs(False)):
        assert glyphs.bar(0, width) == ""
        assert len(glyphs.bar(0.0001, width)) == 1
        assert len(glyphs.bar(1, width)) == len(glyphs.bar(1.7, width)) == width


def test_ascii_bars_are_hashes() -> None:
    assert Glyphs(False).bar(0.5, 10) == "#####"


def test_control_characters_of_a_users_file_do_not_reach_the_terminal() -> None:
    assert Glyphs(True).text("a\tb\x1b[31mc\nd") == "a b\\x1b[31mc d"


def test_ascii_text_has_words_for_what_it_cannot_show() -> None:
    assert Glyphs(False).text("21 µs … é") == "21 us ... ?"


def test_a_broken_command_can_still_be_pasted() -> None:
    command = (
        r"""flatout profile -- python train.py --name 'two  words' --root "/a b/c" --path a\ b --epochs 3 --lr 0.1"""
    )
    lines = shell_lines(command, 40)
    assert len(lines) > 2
    assert all(len(line) <= 40 for line in lines)
    as_the_shell_reads_it = "\n".join(lines).replace("\\\n", "")
    assert shlex.split(as_the_shell_reads_it) == shlex.split(command)


@pytest.mark.parametrize("width", [30, 60, 75])
def test_a_long_command_keeps_the_name_of_its_script(width: int) -> None:
    python = "/home/somebody/deep/project/.venv/bin/python"
    for words in (
        [python, "train.py", "20", "z" * 300],
        [python, "/data/users/someone/experiments/train.py", "--lr", "0.1", *map(str, range(200))],
        [python, "-u", "-m", "train.py"],
    ):
        shown = short_command(words, width, "...")
        assert len(shown) <= width and "train.py" in shown, shown
    assert short_command(["python", "a b.py"], width, "...") == "python 'a b.py'"
    assert short_command(["x" * 100], width, "...").count("x") == width - 3
