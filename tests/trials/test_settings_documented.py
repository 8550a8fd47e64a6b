"""docs/fixing.md names every setting, under the class of the remedies that use it."""

from __future__ import annotations

import re
from pathlib import Path

from flatout.probe.settings import SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "fixing.md"


def test_the_page_names_every_setting_once() -> None:
    text = PAGE.read_text().split("## What can be set from outside")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert list(rows) == ["identical", "numerics", "data", "optimisation"]
    named = [name for row in rows.values() for name in re.findall(r"`(\w+)(?:=\w+)?`", row) if name in SETTINGS]
    assert sorted({*named}) == sorted(SETTINGS)
    assert [name for name in set(named) if named.count(name) > 1] == ["debugging_off"]
