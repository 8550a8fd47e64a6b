"""Modules that do not train, as a record holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.measure.frozen_modules import FrozenModules, read_frozen_modules
from tests.measure.test_padding import process

SEEN = {"steps": 3, "ns": 60_000_000, "modules": [["Net.stem", 3_000_000, 3, 9600, 12], ["Net.body", 0, 3, 2400, 12]]}


def seen(folder: Path, ns: int = 57_000_000, asked: list[int] | None = None, **changes: Any) -> FrozenModules:
    body = ["Net.body", ns, 3, 2400, 12]
    info = {**SEEN, "modules": [body, SEEN["modules"][0]], **changes}  # type: ignore[index]
    last = {"last_steps": {"asked_twice": asked}} if asked else {}
    found = read_frozen_modules(process(folder, frozen_modules=info, **last))
    assert found is not None
    return found


def test_time_and_bytes_are_those_of_a_step_and_a_sample(tmp_path: Path) -> None:
    found = seen(tmp_path)
    assert found.seconds == pytest.approx(0.02)
    assert [(one.name, one.seconds, one.calls) for one in found.modules] == [
        ("Net.body", pytest.approx(0.019), 1.0),
        ("Net.stem", pytest.approx(0.001), 1.0),
    ]
    assert found.sample_bytes == 200.0  # what the last layers give


def test_one_module_that_takes_nearly_all_can_be_kept_alone(tmp_path: Path) -> None:
    found = seen(tmp_path)
    assert found.alone is not None and found.alone.name == "Net.body"
    assert seen(tmp_path / "b", ns=50_000_000).alone is None


@pytest.mark.parametrize(("asked", "same"), [([16, 16], True), ([16, 15], False), (None, None)])
def test_samples_that_differ_forbid_it(tmp_path: Path, asked: list[int] | None, same: bool | None) -> None:
    assert seen(tmp_path, asked=asked).same_samples is same


def test_nothing_was_looked_at_or_found(tmp_path: Path) -> None:
    assert read_frozen_modules(process(tmp_path)) is None
    assert read_frozen_modules(process(tmp_path / "b", frozen_modules={"steps": 3, "ns": 0, "modules": []})) is None
