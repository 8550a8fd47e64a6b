"""Causes inside the step, on planted views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.diagnose.causes.step import interpreter_lock
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.lock_waits import LockWaits
from flatout.predict.context import Context
from flatout.results import Cause, Line, NotMeasured
from tests.diagnose.views import healthy, starved

HELD = Line("train.py", 30, "collect", "total += value", 1.0)


def found(answer: Cause | NotMeasured | None) -> Cause:
    assert isinstance(answer, Cause), answer
    return answer


def locked_by_thread(share: float) -> LockWaits:
    return LockWaits(share, "metrics", 0.9, (HELD,))


def test_a_held_lock_leads_with_the_thread_and_the_line() -> None:
    context = Context.of(replace(healthy(), lock=locked_by_thread(0.4)))
    causes, _ = judge(context)
    assert causes[0].id == "interpreter_lock"
    assert causes[0].share == pytest.approx(0.4, abs=0.02)
    said = verdict(context, causes)
    assert "thread 'metrics'" in said
    assert "train.py:30" in said


def test_a_short_wait_for_the_lock_is_no_fault() -> None:
    context = Context.of(replace(healthy(), lock=locked_by_thread(0.02)))
    assert [cause.id for cause in judge(context)[0]] == ["compute_bound"]


def test_a_wait_for_the_lock_gives_nothing_while_batches_are_awaited() -> None:
    assert interpreter_lock(Context.of(replace(starved(), lock=locked_by_thread(0.15)))) is None


def test_a_wait_that_a_busy_gpu_does_not_notice_costs_nothing() -> None:
    view = healthy(uses_gpu=True, usage={"device_busy_share": 0.99})
    assert interpreter_lock(Context.of(replace(view, lock=locked_by_thread(0.4)))) is None


def test_what_the_kernel_does_not_show_is_not_measured() -> None:
    answer = interpreter_lock(Context.of(replace(healthy(), lock="not shown here")))
    assert isinstance(answer, NotMeasured)
    assert answer.because == "not shown here"
