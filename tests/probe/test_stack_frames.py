"""A sampled stack holds the user's own frame, however deep below it a library works."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from flatout.probe import sites, stacks

DEEP = """
def down(depth, look):
    return down(depth - 1, look) if depth else look()
"""


def stack_below(path: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files of the frames recorded ``depth`` calls below this function, in code that lies at ``path``."""
    monkeypatch.setattr(sites, "_is_user", {path: False, __file__: True})
    namespace: dict[str, Any] = {}
    exec(compile(DEEP, path, "exec"), namespace)
    found = namespace["down"](depth, lambda: stacks._frames(sys._getframe(1)))
    return [code.co_filename for code, _ in found]


def test_the_users_frame_is_kept_below_many_of_a_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = str(tmp_path / "library.py")
    files = stack_below(library, 60, monkeypatch)
    assert files == [library] * sites.MAX_FRAMES + [__file__]


def test_a_short_stack_is_kept_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = stack_below(str(tmp_path / "library.py"), 3, monkeypatch)
    assert len(files) == sites.MAX_FRAMES
    assert files[4] == __file__
