"""Validation that no framework and no loader shows, in hand-made records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.measure.build import build_view
from flatout.measure.measured_run import MeasuredRun
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.record.synthetic import ProcessBuilder, RunBuilder


def evaluate(main: ProcessBuilder, name: str, count: int = 1, seconds: float = 0.1) -> None:
    """Forward passes in evaluation mode, without gradients, and other code after each."""
    for _ in range(count):
        main.spend(kinds.FORWARD, seconds, main.text(name), 0, kinds.EVALUATES)
        main.pause(0.01)


def validated(folder: Path, every: int, name: str = "Net") -> float:
    """Share of validation in 40 steps of 1 s, of which each so-and-so-many-th is followed by 10 passes of 0.11 s."""
    run = RunBuilder(folder)
    main = run.process()
    for step in range(1, 41):
        main.step(forward_s=0.4, backward_s=0.4, optimizer_s=0.2)
        if step % every == 0:
            evaluate(main, name, 10)
    main.step(forward_s=0.4, backward_s=0.4, optimizer_s=0.2)
    view = build_view(load_run(run.write()))
    assert view is not None
    return view.ledger.share("validation")


def test_passes_in_evaluation_mode_after_some_steps_are_validation(tmp_path: Path) -> None:
    assert validated(tmp_path, every=10) == pytest.approx(4.4 / 45, abs=0.02)


@pytest.mark.parametrize("name", ["Net", "Teacher"])
def test_a_model_in_evaluation_mode_in_every_step_takes_part_in_it(tmp_path: Path, name: str) -> None:
    assert validated(tmp_path, every=1, name=name) == 0


@pytest.mark.parametrize(("after_update", "share"), [(True, 0.22 / 1.23), (False, 0.0)])
def test_passes_in_every_step_are_validation_where_they_precede_the_next_step(
    tmp_path: Path, after_update: bool, share: float
) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(40):
        main.spend(kinds.ZERO_GRAD, 0.01)
        if not after_update:
            evaluate(main, "Net", 2)  # a teacher's, of the same class
        main.step(forward_s=0.4, backward_s=0.4, optimizer_s=0.2)
        if after_update:
            evaluate(main, "Net", 2)
    view = build_view(load_run(run.write()))
    assert view is not None
    assert view.ledger.share("validation") == pytest.approx(share, abs=0.02)


def stepped(
    folder: Path, gradients: bool, mode: int = kinds.HAS_TRAINED, trained: bool = False, saved: bool = False
) -> MeasuredRun:
    """40 full-batch steps that zero_grad() splits, each followed by an evaluation of 0.3 s and its loss of 0.1 s."""
    run = RunBuilder(folder)
    main = run.process()
    for _ in range(40):
        main.spend(kinds.FORWARD, 0.3, main.text("Net"), 1, kinds.TRAINS)
        main.spend(kinds.FORWARD, 0.1, main.text("MSELoss"), 1, kinds.TRAINS)
        main.spend(kinds.ZERO_GRAD, 0.01)
        main.spend(kinds.BACKWARD, 0.4)
        main.spend(kinds.OPTIMIZER, 0.19)
        main.spend(kinds.FORWARD, 0.3, main.text("Net"), int(gradients), mode)
        main.spend(kinds.FORWARD, 0.1, main.text("MSELoss"), int(gradients), kinds.TRAINS)
        if saved:
            main.spend(kinds.CHECKPOINT, 0.1)
        if trained:
            main.spend(kinds.BACKWARD, 0.4)
            main.spend(kinds.OPTIMIZER, 0.2)
    view = build_view(load_run(run.write()))
    assert view is not None
    return view


@pytest.mark.parametrize(("gradients", "saved"), [(True, False), (False, False), (True, True)])
def test_the_trained_model_itself_is_validated_in_each_step(tmp_path: Path, gradients: bool, saved: bool) -> None:
    view = stepped(tmp_path, gradients, saved=saved)
    assert view.ledger.share("validation") == pytest.approx(0.4 / (1.4 + 0.1 * saved), abs=0.02)
    assert view.validation_calls.with_gradients == float(gradients)
    assert view.validation_calls.seconds == pytest.approx(39 * 0.3)


@pytest.mark.parametrize(("calls", "every", "validates"), [(40, 20, True), (3, 20, False), (40, 2, False)])
def test_what_is_trained_by_calls_of_its_parts_is_validated_in_a_row(
    tmp_path: Path, calls: int, every: int, validates: bool
) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for step in range(1, 42):
        for layer in ("Embedding", "LSTM"):
            main.spend(kinds.FORWARD, 0.2, main.text(layer), 1, kinds.TRAINS)
        main.spend(kinds.BACKWARD, 0.4)
        main.spend(kinds.OPTIMIZER, 0.2)
        for _ in range(calls if step % every == 0 else 0):
            main.spend(kinds.FORWARD, 0.09, main.text("Tagger"), 1, kinds.EVALUATES)
            main.pause(0.01)
    view = build_view(load_run(run.write()))
    assert view is not None
    assert view.ledger.share("validation") == pytest.approx(8 / 48 if validates else 0, abs=0.02)
    assert view.validation_calls.with_gradients == float(validates)


@pytest.mark.parametrize(
    "others",
    [{"mode": kinds.EVALUATES}, {"trained": True}],
    ids=["another object of its class", "its pass is trained"],
)
def test_passes_in_evaluation_mode_that_take_part_in_a_step_are_no_validation(
    tmp_path: Path, others: dict[str, Any]
) -> None:
    assert stepped(tmp_path, gradients=True, **others).ledger.share("validation") == 0
