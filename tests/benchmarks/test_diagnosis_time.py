"""The benchmark of a diagnosis' time: the record that it lays down, and its page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from flatout.diagnosis import diagnose
from flatout.record import load_run

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "diagnosis_time"


@pytest.fixture
def run() -> Iterator[ModuleType]:
    """The benchmark's run.py; its folder is on the path meanwhile."""
    path, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    try:
        import run

        yield run
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - known:
            if str(FOLDER.parent) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def test_a_laid_down_record_is_a_starved_training_of_as_many_steps(run: ModuleType, tmp_path: Path) -> None:
    found = diagnose(load_run(run.lay_down(tmp_path, 400)))
    assert found.ledger is not None and found.ledger.steps.count == 399  # the first one is start-up
    assert found.causes[0].id == "too_few_workers"
    assert not found.problems


def test_the_page_compares_medians_case_by_case(run: ModuleType) -> None:
    before = [{"starved": (0.5, 19)}, {"starved": (0.7, 19)}, {"starved": (0.6, 19)}]
    after = [{"starved": (0.1, 1)}, {"starved": (0.3, 1)}, {"starved": (0.1, 1)}]
    assert run.page(after, before)[-1] == "| starved | 600 ms (500 to 700) | 19 | 100 ms (100 to 300) | 1 | 6.0 |"
    assert run.page(after, [])[-1] == "| starved | 100 ms (100 to 300) | 1 |"
