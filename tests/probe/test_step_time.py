"""The time of a step, as the probe plans with it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from flatout.probe.recorder import RECENT, Recorder

MS = 1_000_000


def recorder(*ends_ms: float) -> Recorder:
    """After backward passes that ended then."""
    made = Recorder()
    for end in ends_ms:
        made.first_step_ns = made.first_step_ns or round(end * MS)
        made.last_step_ns = round(end * MS)
        made.backwards += 1
        made.recent.append(round(end * MS))
    return made


def test_even_steps_take_their_mean() -> None:
    assert recorder(*range(100, 1000, 10)).step_ns(90) == pytest.approx(10 * MS)


def test_one_long_validation_does_not_make_steps_long() -> None:
    ends = [10.0 * step for step in range(1, 21)] + [60_000 + 10.0 * step for step in range(20)]
    assert recorder(*ends).step_ns(40) <= 2.1 * 10 * MS


def test_several_backward_passes_make_one_step_and_one_pass_shows_nothing() -> None:
    assert recorder(*range(100, 1000, 10)).step_ns(30) == pytest.approx(30 * MS, rel=0.1)
    assert recorder(100.0).step_ns(1) <= MS


def test_only_the_latest_passes_are_kept() -> None:
    assert len(recorder(*range(1, 500)).recent) == RECENT
