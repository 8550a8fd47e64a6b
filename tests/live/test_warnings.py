"""Warnings of a run that goes on: each where it is true, and none where all is well."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flatout.live.history import Checkpoint, History, Step
from flatout.live.notifying import Notifier
from flatout.live.panel import one_line, panel_lines
from flatout.live.projection import Plan
from flatout.live.state import state_of
from flatout.live.warnings import decline, warnings_of
from flatout.live.watched import Watched
from flatout.report.layout import Glyphs
from flatout.units import duration
from tests.live.test_growing_steps import recorded

GIB = 1 << 30
S = 1_000_000_000


def history(seconds: int = 60, **changes: Any) -> History:
    """Steps of 0.1 s for this long in passes of 100, on a machine with room."""
    made = History(info={"id": "run", "command": ["python", "train.py"], "start_ns": 1})
    made.loader = {"dataset_len": 400, "batch_size": 4}
    for number in range(10 * seconds):
        made.recent.append(Step(number * S // 10, 0.1, 0.02, 4, number // 100))
    made.steps, made.first_step_ns = 10 * seconds, S // 10
    made.wait_s, made.stepping_s = 2.0 * seconds / 10, seconds - 0.1
    made.epochs = [(at * 10 * S, (at + 1) * 10 * S, 100) for at in range(seconds // 10)]
    for at in range(2 * seconds):
        made.samples.append(sample(at * S // 2))
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def sample(at_ns: int, **changes: Any) -> dict[str, Any]:
    memory = {"available": 10 * GIB, "used": 6 * GIB, "limit": 16 * GIB}
    return {"t": at_ns, "memory": memory, "shm": {"size": 8 * GIB, "used": GIB}, "cpu": [0.9, 0.8], "cpu_usable": 2,
            "gpus": []} | changes  # fmt: skip


def ids(made: History, plan: Plan = Plan()) -> list[str]:  # noqa: B008 - frozen
    return [warning.id for warning in warnings_of(made, plan)]


def test_a_healthy_run_has_no_warning() -> None:
    assert ids(history()) == []
    assert ids(history(), Plan(epochs=10, deadline_s=200.0)) == []


def test_memory_and_shm_that_shrink_steadily_are_told_with_the_time_that_is_left() -> None:
    made = history()
    for at, one in enumerate(made.samples):
        one["memory"] = {"available": 10 * GIB - at * GIB // 30, "limit": 16 * GIB, "used": 0}
        one["shm"] = {"size": 8 * GIB, "used": GIB + at * GIB // 40}
    found = warnings_of(made, Plan())
    assert [one.id for one in found] == ["memory_runs_out", "shm_runs_out"]
    # 6 GiB are left, and a fifteenth of one goes each second.
    assert found[0].text.startswith("memory runs out in about 1 min 3") and "4.0 GiB a minute" in found[0].text
    assert ids(made, Plan(epochs=6)) == [], "the training ends before"


def test_growth_that_levels_off_is_no_trend() -> None:
    assert decline([(t, 1e9 - 5e8 * (1 - math.exp(-t / 10))) for t in range(60)]) is None
    assert decline([(t, 1e9 - 1e7 * t) for t in range(60)]) == pytest.approx(1e7, rel=0.05)
    assert decline([(t, 1e9 - 1e7 * t) for t in range(8)]) is None


def test_what_is_nearly_full_is_told_at_once() -> None:
    made = history()
    made.samples.append(sample(60 * S, shm={"size": 8 * GIB, "used": 8 * GIB - 1000}))
    assert ids(made) == ["shm_runs_out"]


def test_a_loss_that_is_no_number_is_told_and_another_metric_is_not() -> None:
    assert ids(history(not_finite=("train/loss", math.nan, 55))) == ["loss_not_finite"]
    assert ids(history(not_finite=("ratio", math.inf, 55))) == []


def test_a_training_that_hangs_is_told_but_no_pause_as_long_as_one_before() -> None:
    made = history()
    made.samples.append(sample(95 * S))
    assert ids(made) == ["stalled"]
    made.epochs[3] = (30 * S + 20 * S, 60 * S, 100)  # 20 s of validation before it
    assert ids(made) == []


def test_a_record_that_nobody_writes_tells_no_present_and_is_broken_off_in_the_end(tmp_path: Path) -> None:
    run, seconds = recorded(tmp_path), [0.0]
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "end_ns": None, "stop": None}))
    watched = Watched(run, Plan(), clock=lambda: seconds[0])
    assert (first := watched.look()).steps_per_s and first.wait_share is not None and first.steps == 89
    for seconds[0], warned in ((6.0, []), (35.0, ["stalled"])):
        state = watched.look()
        assert (state.steps_per_s, state.wait_share, state.cores_busy, state.end) == (None, None, None, None)
        assert [one.id for one in state.warnings] == warned and not watched.over
        assert state.elapsed_s == pytest.approx(first.elapsed_s + seconds[0])
        assert one_line(state).endswith(f"nothing was recorded for {duration(seconds[0])}")
        assert "waiting" not in "".join(panel_lines(state, Glyphs(True)))
    seconds[0] = 61.0
    state = watched.look()
    assert watched.over and state.stop == "broken off" and state.steps == 90 and state.warnings == ()
    assert "broken off: nothing came for" in one_line(state)


def test_checkpoints_that_do_not_fit_are_told(tmp_path: Path) -> None:
    (tmp_path / "1.pt").write_bytes(b"x")
    made = history()
    made.checkpoints.append(Checkpoint(20 * S, str(tmp_path / "1.pt"), 1 << 60))
    assert ids(made) == ["disk_for_checkpoints"]


def test_all_gpus_idle_are_told_and_one_of_two_is_not() -> None:
    for second, expected in ((0.0, ["gpu_idle"]), (0.7, [])):
        made = history()
        for one in made.samples:
            one["gpus"] = [{"index": 0, "util": 0.0}, {"index": 1, "util": second}]
        assert ids(made) == expected


def test_an_end_after_the_deadline_is_told() -> None:
    plan = Plan(epochs=20, deadline_s=150.0)
    assert ids(history(), plan) == ["late"]
    state = state_of(history(), plan)
    assert state.end is not None and state.end.at_ns == pytest.approx(200 * S, rel=0.01)


def test_panel_and_line_fit_80_columns_with_and_without_unicode() -> None:
    made = history(not_finite=("loss", math.nan, 55))
    made.samples[-1]["gpus"] = [{"index": 0, "util": 0.5, "memory_used": GIB, "memory_total": 80 * GIB}]
    state = state_of(made, Plan(epochs=20, deadline_s=150.0))
    for unicode in (True, False):
        lines = panel_lines(state, Glyphs(unicode), 80)
        assert max(map(len, lines)) <= 80
        text = "\n".join(lines)
        assert unicode or text.isascii()
        assert (
            "600" in text
            and "10.00 steps/s" in text
            and "1 min" in lines[0]
            and "20%" in text
            and "! loss became NaN" in text
        )
        assert "GPU 0 50%, 1.0 GiB of 80.0 GiB" in text
    assert one_line(state).startswith("step 600")
    assert "no training step yet" in one_line(state_of(History(info={"start_ns": 1}), Plan()))


def test_the_command_is_told_of_each_warning_once_and_of_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    notifier = Notifier(f'echo "$FLATOUT_RUN_ID $FLATOUT_EVENT: $FLATOUT_TEXT" >> {log}')
    made = history(not_finite=("loss", math.nan, 55))
    state = state_of(made, Plan())
    assert notifier.tell(state) is None
    assert notifier.tell(state) is None
    endings = (("finished", 0), ("failed", 137))
    ended = [state_of(replace(made, info={**made.info, "end_ns": 61 * S, "stop": stop, "exit_code": code}), Plan())
             for stop, code in endings]  # fmt: skip
    assert [notifier.end(one) for one in ended] == [None, None]
    assert log.read_text().splitlines() == [
        "run loss_not_finite: loss became NaN by step 55",
        "run ended: run ended after 600 steps",
        "run failed: run: the command was ended by SIGKILL (exit code 137) after 600 steps",
    ]
    assert one_line(ended[1]).endswith("the recording has ended: the command was ended by SIGKILL (exit code 137)")
    assert Notifier("echo no such thing >&2; exit 3").end(state) == (
        "--notify: the command ended with exit code 3: no such thing"
    )
