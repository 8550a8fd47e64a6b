"""A run of a trial is judged by its facts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.trials.outcome import (
    FAILED,
    GUARDED,
    OK,
    OUT_OF_MEMORY,
    REFUSED,
    TOO_SHORT,
    Execution,
    classify,
)
from tests.trials.made_runs import speed


def test_what_is_for_validations_needs_none_in_a_short_run_beside_other_settings() -> None:
    wanted = {"persistent_workers": True, "validation_workers_kept": True}
    run = Execution(stop="steps", wall_s=3.0, speed=speed(100.0), injected=wanted, applied={"persistent_workers": True})
    assert classify(run).outcome == OK
    alone = {"validation_workers_kept": True}
    assert classify(replace(run, injected=alone, applied={})).outcome == REFUSED
    refused = replace(run, refused={"validation_workers_kept": "its passes have gradients"})
    assert classify(refused).detail == "validation_workers_kept: its passes have gradients"


@pytest.mark.parametrize(
    ("facts", "outcome", "detail"),
    [
        ({"stop": "guarded", "guarded": "disk: full"}, GUARDED, "disk: full"),
        ({"stop": "failed", "trained": False, "explanation": "exit code 3"}, FAILED, "exit code 3"),
        ({"stop": "finished", "trained": False, "explanation": "no step"}, FAILED, "no step"),
        (
            {"stop": "failed", "explanation": "exit code 1", "exceptions": ("torch.OutOfMemoryError: CUDA",)},
            OUT_OF_MEMORY,
            "exit code 1",
        ),
        ({"stop": "failed", "exit_code": 137, "explanation": "signal 9"}, OUT_OF_MEMORY, "signal 9"),
        ({"stop": "failed", "exit_code": 135, "explanation": "Bus error"}, OUT_OF_MEMORY, "Bus error"),
        ({"injected": {"tf32": True}}, REFUSED, "tf32: nothing in this training takes it"),
        (
            {"injected": {"tf32": True, "accumulate": 2}, "applied": {"tf32": True}, "refused": {"accumulate": "why"}},
            REFUSED,
            "accumulate: why",
        ),
        (
            {"located": {"num_workers": 4}, "loader": {"num_workers": 1}},
            REFUSED,
            "num_workers is 1 in the DataLoader, though 4 was written where it is set",
        ),
        (
            {"located": {"batch_size": 8}, "loader": {"batch_size": None}},
            REFUSED,
            "batch_size is None in the DataLoader",
        ),
        ({"speed": None, "no_speed": "too few steps"}, TOO_SHORT, "too few steps"),
        # A failure counts before a setting that did not take effect: it may be why.
        ({"stop": "failed", "explanation": "exit code 1", "injected": {"tf32": True}}, FAILED, "exit code 1"),
    ],
)
def test_what_does_not_count_says_why(facts: dict[str, Any], outcome: str, detail: str) -> None:
    execution = Execution(**{"stop": "steps", "wall_s": 3.0, "speed": speed(100.0), "losses": (1.0,), **facts})
    found = classify(execution)
    assert found.outcome == outcome and found.detail.startswith(detail)
    assert found.wall_s == 3.0 and found.speed is None and found.losses == () and found.changed == {}


def test_a_run_with_all_settings_in_effect_counts() -> None:
    execution = Execution(
        stop="seconds",
        wall_s=3.0,
        injected={"tf32": True},
        applied={"tf32": True},
        located={"num_workers": 4, "lr_factor": 2.0},
        loader={"num_workers": 4},
        speed=speed(100.0),
        losses=(1.0, 0.5),
    )
    found = classify(execution)
    assert (found.outcome, found.detail, found.losses, found.changed) == (OK, "", (1.0, 0.5), {"tf32": True})
    assert found.speed is not None and found.speed.rate == 100.0


@pytest.mark.parametrize(
    ("facts", "later"),
    [
        ({"injected": {"call_every": "a.py:log:5"}}, True),
        ({"injected": {"call_every": "a.py:log:5", "tf32": True}}, False),
        ({"injected": {"call_every": "a.py:log:5"}, "refused": {"call_every": "it draws random numbers"}}, False),
    ],
)
def test_a_longer_run_would_have_left_calls_out(facts: dict[str, Any], later: bool) -> None:
    execution = Execution(**{"stop": "steps", "wall_s": 3.0, "speed": speed(100.0), "losses": (1.0,), **facts})
    found = classify(execution)
    assert (found.outcome, found.acts_later) == (REFUSED, later)
