"""A repeated weight, as a record has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.measure.repeated_weights import JoinedCalls, RepeatedWeight, read_repeated_weight
from flatout.record import load_run
from tests.record.synthetic import RunBuilder

SEEN = {"name": "Net.head.weight", "shape": [512, 512], "output": [1, 512], "uses": 96, "chain": 2, "part": 0.9}


def read(folder: Path, **info: Any) -> RepeatedWeight | None:
    run = RunBuilder(folder)
    run.process(**info)
    return read_repeated_weight(load_run(run.write()).processes[0])


def test_calls_that_one_could_replace_and_what_they_would_take(tmp_path: Path) -> None:
    found = read(tmp_path, repeated_weight={**SEEN, "apart_s": 0.010, "joined_s": 0.002})
    assert found is not None
    assert (found.name, found.calls, found.joined) == ("Net.head.weight", 48, pytest.approx(0.2))


def test_one_product_that_was_not_faster_gives_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, repeated_weight={**SEEN, "apart_s": 0.010, "joined_s": 0.011})
    assert found is not None and found.joined == 1.0


@pytest.mark.parametrize("damage", [{"uses": 0}, {"chain": "two"}, {"part": 7}])
def test_damaged_fields_are_no_finding(tmp_path: Path, damage: dict[str, Any]) -> None:
    assert read(tmp_path, repeated_weight={**SEEN, **damage}) is None


def test_products_that_were_not_timed(tmp_path: Path) -> None:
    found = read(tmp_path / "a", repeated_weight=SEEN)
    assert found is not None and found.joined is None
    assert read(tmp_path / "b") is None


def test_what_one_call_of_the_module_takes_for_these_inputs_and_for_more(tmp_path: Path) -> None:
    times = {"calls": 8, "apart_ns": [1200, 1000, 1000], "joined_ns": [360, 300, 1200]}
    found = read(tmp_path, repeated_weight={**SEEN, "module": times})
    assert found is not None and isinstance(found.module, JoinedCalls)
    module = found.module
    assert (module.calls, module.low, module.part, module.high) == (8, 0.3, 0.3, 1.0)
    assert module.call_s == pytest.approx(1000e-9 / 8)
    assert module.of(8, module.part) == pytest.approx(0.3)
    # A call costs 0.8 beside its sample: 0.2 + 0.8 / 64.
    assert module.of(64, module.part) == pytest.approx(0.2 + 0.8 / 64)
    assert module.of(64, module.high) == 1.0


def test_one_call_takes_no_less_than_any_of_those_that_it_replaces(tmp_path: Path) -> None:
    interrupted = {"calls": 8, "apart_ns": [2_846_733_512, 4_000], "joined_ns": [850_256, 1_000]}
    found = read(tmp_path, repeated_weight={**SEEN, "module": interrupted})
    assert found is not None and isinstance(found.module, JoinedCalls)
    assert (found.module.low, found.module.part, found.module.high) == (0.125, 0.25, 0.25)
    assert found.module.call_s == pytest.approx(500e-9)


@pytest.mark.parametrize(
    ("seen", "because"),
    [({"skipped": "its input is large"}, "its input is large"), ({"calls": 8, "apart_ns": []}, "it was not timed")],
)
def test_a_module_that_was_not_timed_says_why(tmp_path: Path, seen: dict[str, Any], because: str) -> None:
    found = read(tmp_path, repeated_weight={**SEEN, "module": seen})
    assert found is not None and found.module == because
