"""Steps of several kinds: those of the kind that takes most of the time are waited for, but not for long."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from flatout.probe.experiments import usual_steps
from flatout.probe.experiments.usual_steps import AWAITED_NS, StepKinds, UsualStep

MS = 1_000_000


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found: dict[str, Any] = {}
    monkeypatch.setattr(usual_steps.REC, "process", found)
    monkeypatch.setattr(usual_steps.REC, "save_process", lambda **fields: found.update(fields))
    return found


def kinds(**steps: tuple[int, int, int]) -> StepKinds:
    """How often, and ms of the backward pass and of the whole step."""
    made = StepKinds()
    for count, backward_ms, step_ms in steps.values():
        for _ in range(count):
            made.add(backward_ms * MS, step_ms * MS)
    return made


def test_a_kind_is_known_by_its_backward_passes_and_weighed_by_its_time() -> None:
    made = kinds(encoder=(10, 50, 300), classifier=(1000, 1, 1))
    assert made.share(60 * MS) == made.most() == 0.75
    assert made.share(1 * MS) == 0.25
    assert made.share(5000 * MS) == 0.0
    made.add(1 * MS, 5000 * MS)  # behind an evaluation
    assert made.share(60 * MS) == pytest.approx(0.75, abs=0.01)


def test_before_any_step_everything_is_usual() -> None:
    assert StepKinds().share(7) == StepKinds().most() == 1.0


def test_a_step_of_the_commonest_kind_is_waited_for(monkeypatch: pytest.MonkeyPatch, saved: dict[str, Any]) -> None:
    monkeypatch.setattr(usual_steps, "KINDS", kinds(encoder=(10, 50, 300), classifier=(1000, 1, 1)))
    step = UsualStep("changed")
    assert not step.awaited
    assert not step.has_come(1 * MS) and step.awaited
    assert step.has_come(50 * MS) and not step.awaited
    assert step.has_come(1 * MS)  # it has come
    assert saved["usual_steps"] == {"changed": [0.75, 0.75, 2]}


def test_where_none_comes_the_others_are_looked_at(monkeypatch: pytest.MonkeyPatch, saved: dict[str, Any]) -> None:
    monkeypatch.setattr(usual_steps, "KINDS", kinds(encoder=(10, 50, 300), classifier=(1000, 1, 1)))
    clock = [1]
    monkeypatch.setattr(usual_steps, "now", lambda: clock[0])
    saved["usual_steps"] = {"changed": [0.75, 0.75, 1]}
    step = UsualStep("traced")
    assert not step.has_come(1 * MS)
    clock[0] += AWAITED_NS
    assert step.has_come(1 * MS)
    assert UsualStep("later").has_come(1 * MS)  # the time is used up
    del saved["usual_steps"]["later"]
    assert saved["usual_steps"] == {"changed": [0.75, 0.75, 1], "traced": [0.25, 0.75, 2]}
