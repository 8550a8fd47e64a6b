"""Waits for the interpreter lock, on hand-made records."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.measure.build import build_view
from flatout.measure.lock_waits import LockWaits
from flatout.measure.measured_run import MeasuredRun
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.record.synthetic import ProcessBuilder, RunBuilder, ns

RUNS, AT_LOCK, BLOCKED, UNKNOWN = range(4)
LOOK_S = 0.05


def look(
    main: ProcessBuilder, blocked_s: float, others_s: float, state: int = AT_LOCK, thread: str = "metrics"
) -> None:
    """The sampler's look at the end of the interval that ends now."""
    frames = [["/home/me/train.py", 30, "collect", "total += value", True]]
    stack = main.name("stack", frames=frames, thread=thread) if thread else 0
    main.emit(kinds.LOCK, main.now_s - LOOK_S, main.now_s, stack, ns(blocked_s), state | ns(others_s) << 2)


def steps(
    main: ProcessBuilder, blocked_s: float, others_s: float, state: int = AT_LOCK, host_s: float = 0.0
) -> MeasuredRun:
    """100 steps of 50 ms, each looked at at its end, in the backward pass."""
    main.step(forward_s=0.01, backward_s=0.04 - host_s)
    for _ in range(100):
        main.pause(host_s)
        main.step(forward_s=0.01, backward_s=0.04 - host_s)
        main.now_s -= 0.001
        look(main, blocked_s, others_s, state)
        main.now_s += 0.001
    return build(main)


def build(main: ProcessBuilder) -> MeasuredRun:
    view = build_view(load_run(RUNS_OF[main].write()))
    assert view is not None
    return view


RUNS_OF: dict[ProcessBuilder, RunBuilder] = {}


@pytest.fixture
def main(tmp_path: Path) -> ProcessBuilder:
    run = RunBuilder(tmp_path)
    process = run.process()
    RUNS_OF[process] = run
    return process


def test_a_wait_while_another_thread_computes_is_its_exact_blocked_time(main: ProcessBuilder) -> None:
    lock = steps(main, blocked_s=0.02, others_s=0.03).lock
    assert isinstance(lock, LockWaits)
    assert lock.share == pytest.approx(0.4, abs=0.01)
    assert lock.other_cores == pytest.approx(0.6, abs=0.02)
    assert lock.thread == "metrics"
    assert (lock.lines[0].line, lock.lines[0].source) == (30, "total += value")


def test_a_thread_holds_the_lock_no_longer_than_it_computes(main: ProcessBuilder) -> None:
    lock = steps(main, blocked_s=0.02, others_s=0.002).lock
    assert isinstance(lock, LockWaits)
    assert lock.share == pytest.approx(0.04, abs=0.01)


def test_being_blocked_elsewhere_is_no_wait_for_the_lock(main: ProcessBuilder) -> None:
    lock = steps(main, blocked_s=0.02, others_s=0.03, state=BLOCKED).lock
    assert isinstance(lock, LockWaits)
    assert lock.share == 0.0


def test_a_thread_that_runs_waits_for_nothing(main: ProcessBuilder) -> None:
    lock = steps(main, blocked_s=0.0, others_s=0.05, state=RUNS).lock
    assert isinstance(lock, LockWaits)
    assert lock.share == 0.0


def test_waiting_between_the_steps_does_not_count(main: ProcessBuilder) -> None:
    """20 ms of each step lie outside the computation: a queue that is waited for, for example."""
    lock = steps(main, blocked_s=0.02, others_s=0.03, host_s=0.02).lock
    assert isinstance(lock, LockWaits)
    assert lock.share == pytest.approx(0.0, abs=0.01)


def test_without_the_kernels_word_the_wait_is_unknown(main: ProcessBuilder) -> None:
    lock = steps(main, blocked_s=0.02, others_s=0.03, state=UNKNOWN).lock
    assert isinstance(lock, str)
    assert "/proc/self/task" in lock


def test_without_other_threads_there_is_nothing_to_judge(main: ProcessBuilder) -> None:
    for _ in range(50):
        main.step(forward_s=0.01, backward_s=0.04)
    assert build(main).lock is None
