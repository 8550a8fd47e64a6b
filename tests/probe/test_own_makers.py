"""A thread that makes the training's input is sampled while the training waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.measure.ledger import ledger_of
from flatout.measure.samples import frames_of
from flatout.probe import events
from flatout.record import of_kinds
from tests.probe.parts import bare_script, probed_script, within
from tests.probe.recorded import Recorded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return probed_script(tmp_path_factory.mktemp("probed"), "own_makers.py")


def functions(probed: Recorded, training: bool) -> set[str]:
    """Functions in the stack samples of the thread that trains, or of the others."""
    stacks = of_kinds(within(probed, "thread"), events.STACK)
    chosen = stacks[(stacks["thread"] == 0) == training]
    frames: list[list[Any]] = []
    for stack in chosen["arg"].tolist():
        frames += frames_of(probed.main.names, stack)
    return {str(frame[2]) for frame in frames}


def test_the_thread_at_work_is_sampled_and_one_that_rests_is_not(probed: Recorded) -> None:
    assert {"prepared", "produce"} <= functions(probed, training=False)
    assert "rest" not in functions(probed, training=False)
    assert "prepared" not in functions(probed, training=True)


def test_the_ledger_names_the_work_of_the_thread(probed: Recorded) -> None:
    assert probed.run is not None
    ledger = ledger_of(probed.run)
    assert ledger is not None
    producer = ledger.account("batch_wait.producer")
    assert producer is not None and producer.children
    named = {line.function for child in producer.children for line in child.lines}
    assert named and all(function.startswith(("prepared", "produce")) for function in named)


def test_the_losses_are_those_without_the_probe(tmp_path, probed: Recorded) -> None:
    assert bare_script(tmp_path, "own_makers.py").out == probed.out
