"""Gradients that nothing uses, read from records of steps after the window."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.measure.experiments import read_experiments
from flatout.measure.gradients import (
    DiscardedGradients,
    DiscardingLine,
    UnusedGradients,
    read_discarded_gradients,
    read_unused_gradients,
)
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.measure.test_experiments import alternating
from tests.record.synthetic import RunBuilder


def unused(run: RunBuilder) -> UnusedGradients | str | None:
    found = load_run(run.write()).processes[0]
    return read_unused_gradients(found, read_experiments(found))


def discarded(run: RunBuilder) -> DiscardedGradients | str | None:
    found = load_run(run.write()).processes[0]
    return read_discarded_gradients(found, read_experiments(found))


def test_unused_gradients_have_the_gain_of_the_blocks_without_them(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process(unused_gradients={"elements": 90, "of": 100, "modules": ["Net.backbone"]})
    alternating(main, "used_gradients", 0.030, [0.018] * 7)
    found = unused(run)
    assert isinstance(found, UnusedGradients) and found.tried is not None
    assert found.tried.gain == pytest.approx(0.4, abs=1e-6) and found.part == 0.9
    assert found.modules == ("Net.backbone",) and not found.clipped


def test_clipping_is_known_from_the_window(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process(unused_gradients={"elements": 90, "of": 100, "not_tried": "gradients are clipped"})
    main.spend(kinds.OPTIMIZER, 0.01, main.text("clip_grad_norm_"))
    found = unused(run)
    assert isinstance(found, UnusedGradients) and found.clipped
    assert found.tried is None and found.not_tried == "gradients are clipped" and found.needed


def test_no_unused_gradients_and_none_looked_for(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "a")
    run.process(unused_gradients={"elements": 0, "of": 100, "modules": []})
    assert unused(run) is None
    run = RunBuilder(tmp_path / "b")
    run.process(compiled=True)
    assert unused(run) == "the model is compiled"


LINE = ["/w/train.py", 27, "main", 4, 45, 50, ["Net.critic"]]


def test_discarded_gradients_have_the_gain_of_the_blocks_without_them(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process(discarded_gradients={"elements": 180, "of": 400, "lines": [LINE], "not_tried": None})
    alternating(main, "kept_gradients", 0.030, [0.024] * 7)
    found = discarded(run)
    assert isinstance(found, DiscardedGradients) and found.tried is not None and not found.needed
    assert found.tried.gain == pytest.approx(0.2, abs=1e-6) and found.part == 0.45
    assert found.lines == (DiscardingLine("/w/train.py", 27, "main", 4, 45, 50, ("Net.critic",)),)


def test_no_discarded_gradients_and_unknown_ones(tmp_path: Path) -> None:
    for name, seen, answer in (
        ("none", {"elements": 0, "of": 400, "lines": []}, None),
        ("failed", {"failed": "the graph could not be read"}, "the graph could not be read"),
        ("two losses", {"elements": 0, "of": 400, "lines": [], "passes": [40, 2]}, None),
        (
            "few",
            {"elements": 0, "of": 400, "lines": [], "passes": [7, 2]},
            "only 7 backward passes from 2 lines were looked at after the window",
        ),
        ("one loss", {"elements": 0, "of": 400, "lines": [], "passes": [3, 1]}, None),
        ("damaged", {"elements": 500, "of": 400, "lines": [LINE]}, None),
    ):
        run = RunBuilder(tmp_path / name)
        run.process(discarded_gradients=seen)
        assert discarded(run) == answer
    run = RunBuilder(tmp_path / "hooks")
    run.process(discarded_gradients={"elements": 180, "of": 400, "lines": [LINE], "not_tried": "hooks"})
    found = discarded(run)
    assert isinstance(found, DiscardedGradients) and found.needed and found.not_tried == "hooks"
