"""Pairs of runs of which one holds a validation or a checkpoint more than the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flatout.compare.comparison import Comparison
from flatout.compare.evened import evened
from flatout.compare.pauses import _within
from flatout.compare.ratio import ratio_of
from flatout.compare.speed import Speed, measure
from flatout.measure.timeline import intervals
from flatout.probe import events as kinds
from flatout.report.comparison import notes
from tests.record.synthetic import RunBuilder

PAUSE_S = 3.0


def recorded(folder: Path, name: str, step_s: float, steps: int, every: int, kind: int = kinds.VALIDATION) -> Speed:
    """A run of even steps, with a pause of three seconds after each so many of them."""
    run = RunBuilder(folder / name)
    main = run.process()
    main.pause(1.0)
    loader = main.loader(batch_size=4)
    main.iterate(loader)
    for number in range(1, steps + 1):
        main.step(loader, wait_s=0.01, forward_s=0.4 * step_s, backward_s=0.6 * step_s - 0.01)
        if number % every == 0:
            main.spend(kind, PAUSE_S)
    return measure(run.write())


@pytest.mark.parametrize(("kind", "account"), [(kinds.VALIDATION, "validation"), (kinds.CHECKPOINT, "checkpoint")])
def test_what_only_the_faster_run_came_to_counts_as_often_in_both(tmp_path: Path, kind: int, account: str) -> None:
    a = recorded(tmp_path, "a", 0.2, 58, every=60, kind=kind)
    b = recorded(tmp_path, "b", 0.15, 77, every=60, kind=kind)
    assert b.rate / a.rate < 1.06  # 20 steps more, and three seconds of a pause
    runs = evened([a], [b])
    ((first,), (second,)) = runs
    # One pause in 133 steps.
    assert second.rate / first.rate == pytest.approx((0.2 + PAUSE_S / 133) / (0.15 + PAUSE_S / 133), rel=0.02)
    assert first.seconds_of(account, 133 * 4) == pytest.approx(PAUSE_S, rel=0.03)
    assert second.seconds_of(account, 133 * 4) == pytest.approx(PAUSE_S, rel=0.03)
    assert second.seconds_of("backward", 4000) == pytest.approx(b.seconds_of("backward", 4000))
    assert first.error < 0.03 and second.error < 0.03
    comparison = Comparison(*runs, ratio_of(*runs))
    assert [note for note in notes(comparison) if note.startswith(f"{account.capitalize()} did not come as often")]
    assert account not in [name for name, _, _ in comparison.accounts()]


def test_as_many_in_both_count_as_they_are(tmp_path: Path) -> None:
    a, b = recorded(tmp_path, "a", 0.2, 65, every=60), recorded(tmp_path, "b", 0.15, 65, every=60)
    assert evened([a], [b]) == ([a], [b])


def test_several_in_both_count_as_they_are(tmp_path: Path) -> None:
    a, b = recorded(tmp_path, "a", 0.2, 62, every=20), recorded(tmp_path, "b", 0.15, 82, every=20)
    assert evened([a], [b]) == ([a], [b])


def test_what_comes_in_every_step_of_one_run_alone_is_what_was_changed(tmp_path: Path) -> None:
    a, b = recorded(tmp_path, "a", 6.0, 12, every=1), recorded(tmp_path, "b", 6.0, 18, every=60)
    assert evened([a], [b]) == ([a], [b])
    assert b.rate / a.rate == pytest.approx(1.5, rel=0.05)
    a, b = recorded(tmp_path, "c", 0.2, 78, every=25), recorded(tmp_path, "d", 0.2, 130, every=500)
    assert evened([a], [b]) == ([a], [b])


def test_one_that_takes_little_counts_as_it_is(tmp_path: Path) -> None:
    a, b = recorded(tmp_path, "a", 2.0, 58, every=60), recorded(tmp_path, "b", 1.5, 77, every=60)
    assert evened([a], [b]) == ([a], [b])


def test_runs_without_a_partner_stay(tmp_path: Path) -> None:
    a, b = recorded(tmp_path, "a", 0.2, 58, every=60), recorded(tmp_path, "b", 0.15, 77, every=60)
    first, second = evened([a, a], [b])
    assert first[1] is a and first[0] is not a and len(second) == 1


def test_a_pause_that_goes_on_at_the_end_of_the_window_is_none_that_ended() -> None:
    second = 10**9
    pieces = intervals([1 * second, 4 * second, 9 * second], [2 * second, 6 * second, 12 * second])
    steps = np.array([3, 7]) * second
    found = _within(pieces, 3 * second, 10 * second, steps, steps + 2 * second)
    assert (found.count, found.whole_s, found.cut_s, found.seconds) == (1, 2.0, 1.0, 3.0)
    assert found.in_steps_s.tolist() == [1.0, 0.0]
