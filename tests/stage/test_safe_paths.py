"""Keys may hold anything; files appear below the destination and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.stage.destination.safe_paths import refusal


@pytest.mark.parametrize(
    "key",
    ["", "/etc/passwd", "../up", "a/../../b", "a//b", "./a", "a/.", "a\nb", "a\x00b", "a/" + 300 * "x", "\ud800",
     ".flatout-stage/lock", 60 * (100 * "y" + "/") + "z"],
)  # fmt: skip
def test_a_key_that_cannot_be_a_file_below_the_destination_is_refused(key: str) -> None:
    assert refusal(key)


@pytest.mark.parametrize(
    "key", ["a", "train/n01440764/x.JPEG", "ünï/côde.png", "..a/b..", "a b/c", 255 * "x", ".hidden"]
)
def test_an_ordinary_key_is_accepted(key: str) -> None:
    assert refusal(key) is None


@given(st.text(max_size=60))
def test_whatever_is_accepted_lies_below_the_destination(key: str) -> None:
    if refusal(key) is None:
        below = Path("/dest").joinpath(key)
        assert below.is_relative_to("/dest") and ".." not in below.parts and below != Path("/dest")
