"""Work that a step does twice, as a record has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.measure.repeated_work import RepeatedWork, read_repeated_work
from flatout.record import load_run
from tests.record.synthetic import RunBuilder

SEEN = {
    "operators": 90, "ns": 10_000_000, "again_ns": 3_000_000, "behind_ns": 2_000_000, "on_purpose_ns": 0,
    "lines": [["/home/me/train.py", 12, "step", "parametrization", "mm", 3_000_000, 35]],
}  # fmt: skip


def read(folder: Path, **info: Any) -> RepeatedWork | str | None:
    run = RunBuilder(folder)
    run.process(**info)
    return read_repeated_work(load_run(run.write()).processes[0])


def test_the_backward_passes_of_what_is_done_again_count_too(tmp_path: Path) -> None:
    found = read(tmp_path, repeated_work=SEEN)
    assert isinstance(found, RepeatedWork) and (found.part, found.with_backward) == (
        pytest.approx(0.3),
        pytest.approx(0.5),
    )
    assert found.first is None
    (line,) = found.lines
    assert (line.file, line.line, line.operator, line.calls, line.seconds) == (
        "/home/me/train.py", 12, "mm", 35, pytest.approx(0.003),
    )  # fmt: skip


def test_nothing_was_looked_at_or_it_is_damaged(tmp_path: Path) -> None:
    assert read(tmp_path / "a") is None
    assert read(tmp_path / "b", repeated_work={**SEEN, "ns": "many"}) is None
    assert read(tmp_path / "c", repeated_work={**SEEN, "ns": 0}) is None
    found = read(tmp_path / "d", repeated_work={**SEEN, "again_ns": 99_000_000, "cut": True})
    assert isinstance(found, RepeatedWork) and (found.part, found.with_backward, found.first) == (1.0, 1.0, 90)
    assert read(tmp_path / "e", repeated_work={"skipped": "the model is compiled"}) == "the model is compiled"
