"""Files that are replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flatout.atomic_file import replacing, write_atomically


def test_the_new_content_takes_the_place_of_the_old_with_the_usual_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    write_atomically(path, "né")
    assert path.read_bytes() == "né".encode()
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode
    assert sorted(os.listdir(tmp_path)) == ["a.json", "plain"]


def test_an_interrupted_write_leaves_the_old_content_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(theirs)
    write_atomically(link, "ours")
    assert theirs.read_text() == "precious"
    assert link.read_text() == "ours"
    assert not link.is_symlink()


def test_a_name_of_the_greatest_length_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"
