"""Steps found while a record grows are those that the report finds in the whole."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flatout.live.follower import Follower
from flatout.live.history import History
from flatout.live.projection import Plan
from flatout.live.ranks import RanksFollower
from flatout.live.step_rows import GrowingSteps
from flatout.live.warnings import warnings_of
from flatout.measure.ranks import build_ranks
from flatout.measure.step_phases import PHASES, step_phases
from flatout.measure.training import Training, find_training
from flatout.record import load_run
from flatout.record.growing import EventsTail, LinesTail
from tests.record.synthetic import RunBuilder


def recorded(folder: Path, loader: bool = True) -> Path:
    """Three passes of 30 steps with a pause between them, one step slower than the others."""
    run = RunBuilder(folder)
    main = run.process()
    feeding = main.loader(num_workers=0, batch_size=4) if loader else None
    for epoch in range(3):
        if feeding is not None:
            main.iterate(feeding)
        for number in range(30):
            slow = 0.5 if (epoch, number) == (1, 7) else 0.0
            main.step(
                feeding, wait_s=0.01 if loader else 0.0, forward_s=0.02, backward_s=0.03 + slow, optimizer_s=0.005
            )
        main.pause(0.7)
    return run.write()


def whole(path: Path) -> Training:
    training = find_training(load_run(path))
    assert training is not None
    return training


@pytest.mark.parametrize("loader", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_steps_given_a_part_at_a_time_are_those_of_the_whole(tmp_path: Path, loader: bool, seed: int) -> None:
    training = whole(recorded(tmp_path, loader))
    process, table = training.process, training.steps
    events, draw = process.events, random.Random(seed)
    growing, rows = GrowingSteps(), []
    begin = 0
    while begin < len(events):
        end = begin + draw.choice([1, 2, 7, 50])
        rows.append(growing.take(replace(process, events=events[begin:end])))
        begin = end
    # A step is over when the next one begins, and the last one when nothing comes any more: it is told once.
    assert sum(map(len, rows)) == len(table) - 1
    rows += [growing.take(replace(process, events=events[:0]), last=True) for _ in range(2)]
    starts = np.concatenate([each.start_ns for each in rows])
    assert starts.tolist() == table.start_ns.tolist()
    lengths = np.concatenate([each.duration_s for each in rows])
    # The step before a pause ends with it where no batch marks the next one.
    assert lengths == pytest.approx(table.duration_s)
    assert np.concatenate([each.epoch for each in rows]).tolist() == table.epoch.tolist()
    phases = step_phases(table, training.events)
    for name in PHASES:
        assert np.concatenate([each.parts[name] for each in rows]) == pytest.approx(phases[name])


def test_a_record_is_followed_from_its_files_a_part_at_a_time(tmp_path: Path) -> None:
    done = recorded(tmp_path / "done")
    growing = tmp_path / "growing"
    (growing / "processes").mkdir(parents=True)
    info = json.loads((done / "run.json").read_text())
    (growing / "run.json").write_text(json.dumps({**info, "end_ns": None, "stop": None}))
    for file in (done / "processes").glob("*.json"):
        (growing / "processes" / file.name).write_text(file.read_text())
    follower, history = Follower(growing), History()
    history.take(follower.look())
    assert history.steps == 0
    parts = {file: file.read_bytes() for file in (done / "processes").iterdir() if file.suffix in {".events", ".names"}}
    for share in (0.3, 0.31, 0.8, 1.0):
        for file, data in parts.items():
            # In the middle of an event, or of a line.
            (growing / "processes" / file.name).write_bytes(data[: round(len(data) * share)])
        history.take(follower.look())
    training = whole(done)
    assert history.steps == len(training.steps) - 1 and history.stop is None
    (growing / "run.json").write_text(json.dumps(info))
    history.take(follower.look())
    assert history.steps == len(training.steps) and history.stop == "finished"
    assert [count for _, _, count in history.epochs] == [30, 30, 30]
    assert history.wait_s == pytest.approx(float(training.steps.wait_s[1:].sum()))


def test_a_file_that_is_not_there_or_half_a_line_gives_nothing(tmp_path: Path) -> None:
    assert len(EventsTail(tmp_path / "none.events").read()) == 0
    lines = LinesTail(tmp_path / "lines")
    assert lines.read() == []
    (tmp_path / "lines").write_bytes(b"one\ntw")
    assert lines.read() == [b"one"]
    with (tmp_path / "lines").open("ab") as file:
        file.write(b"o\n")
    assert lines.read() == [b"two"]
    assert lines.read() == []


def test_a_late_rank_is_told_from_parts_of_the_record_as_from_the_whole(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "done")
    for number in range(3):
        process = run.process(rank=number, world_size=3)
        loader = process.loader(num_workers=0, batch_size=4)
        process.iterate(loader)
        for step in range(120):
            own = 0.05 if number == 2 else 0.01 + 0.001 * (step % 3)
            process.step(loader, wait_s=own, forward_s=0.01, backward_s=0.02 + 0.05 - own)
    done = run.write()
    growing = tmp_path / "growing"
    (growing / "processes").mkdir(parents=True)
    for file in (done / "processes").glob("*.json"):
        (growing / "processes" / file.name).write_text(file.read_text())
    follower = RanksFollower(growing / "processes")
    found = []
    for share in (0.0, 0.2, 0.35, 0.351, 0.7, 1.0):
        for file in (done / "processes").glob("*.events"):
            data = file.read_bytes()
            (growing / "processes" / file.name).write_bytes(data[: round(len(data) * share)])
        found.append(follower.look())
    assert found[:2] == [None, None], "too few steps"
    whole_run, latest = build_ranks(load_run(done)), found[-1]
    assert whole_run is not None and latest is not None
    assert (latest.straggler, latest.steps, latest.part) == (2, whole_run.steps, whole_run.part)
    assert (latest.waited_share, latest.usual_s) == pytest.approx((whole_run.waited_share, whole_run.usual_s))
    history = History(ranks=found[4])
    assert [one.id for one in warnings_of(history, Plan())] == ["rank_late"]
    assert "rank 2 of 3 is late: it waits for batches" in warnings_of(history, Plan())[0].text
