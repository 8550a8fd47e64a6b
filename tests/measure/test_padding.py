"""Padding and unused gradients, as hand-made records hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.measure.padding import Padding, read_padding
from flatout.record import ProcessRecord, load_run
from tests.record.synthetic import RunBuilder


def process(folder: Path, **info: Any) -> ProcessRecord:
    run = RunBuilder(folder)
    run.process(**info)
    return load_run(run.write()).processes[0]


def padding(folder: Path, **info: Any) -> Padding | str | None:
    return read_padding(process(folder, **info))


BATCHES = [[100, 80, 40, 20], [100, 60, 20, 20]]
SEEN = {"looked_at": 2, "tensor": "ids", "evidence": "mask", "computed": True, "part": 0.9, "batches": BATCHES}


def test_what_trimming_and_grouping_take_away(tmp_path: Path) -> None:
    found = padding(tmp_path, padding=SEEN)
    assert isinstance(found, Padding)
    assert (found.tensor, found.evidence, found.part) == ("ids", "mask", 0.9)
    assert found.share == pytest.approx(1 - 240 / 600)
    assert found.longest == 70
    assert found.trimmed == pytest.approx(1 - (3 * 80 + 3 * 60) / 600)
    # Sorted: 20, 20, 20 and 40, 60, 80.
    assert found.grouped == pytest.approx(1 - (3 * 20 + 3 * 80) / 600)
    assert found.fixed


def test_packed_rows_end_with_the_longest(tmp_path: Path) -> None:
    found = padding(tmp_path, padding={**SEEN, "packed": True})
    assert isinstance(found, Padding)
    assert found.trimmed == 0 and not found.fixed
    assert found.grouped == pytest.approx(1 - (3 * 20 + 3 * 80) / (3 * 80 + 3 * 60))


def test_batches_that_end_with_their_longest_row_are_not_of_a_fixed_length(tmp_path: Path) -> None:
    found = padding(tmp_path, padding={**SEEN, "batches": [[80, 80, 40, 20], [60, 60, 20]]})
    assert isinstance(found, Padding) and not found.fixed and found.trimmed == 0.0
    assert found.grouped == pytest.approx(1 - (3 * 40 + 2 * 80) / (240 + 120))


@pytest.mark.parametrize("seen", [{"looked_at": 3}, {**SEEN, "computed": False}])
def test_batches_without_padding_that_is_computed(tmp_path: Path, seen: dict[str, Any]) -> None:
    assert padding(tmp_path, padding=seen) is None


def test_padding_that_may_not_be_computed_is_not_judged(tmp_path: Path) -> None:
    answer = padding(tmp_path, padding={**SEEN, "computed": None})
    assert isinstance(answer, str) and "the graph of the loss" in answer


def test_rows_longer_than_their_batch_are_not_believed(tmp_path: Path) -> None:
    assert padding(tmp_path, padding={**SEEN, "batches": [[10, 80], [0, 0], [5]]}) is None


def test_a_record_without_batches_says_why(tmp_path: Path) -> None:
    assert padding(tmp_path) == "no batch of a DataLoader was looked at after the window"
    assert padding(tmp_path / "b", experiments_skipped="2 ranks have to stay in step") == "2 ranks have to stay in step"
